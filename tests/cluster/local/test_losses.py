"""Workers that are lost are told by one line, whatever Dask leaves behind."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from distributed.comm import CommClosedError

from rankfold.cluster.local.client import leave_losses_to_the_watchdog


async def abandon(error: Exception) -> None:
    """Leave a future whose error nobody asks for."""
    asyncio.get_running_loop().create_future().set_exception(error)
    gc.collect()


@pytest.mark.parametrize(
    ("error", "is_logged"), [(CommClosedError("gone"), False), (ValueError("a mistake"), True)]
)
def test_answers_of_lost_workers_are_not_logged(
    error: Exception, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    leave_losses_to_the_watchdog()
    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(abandon(error))
    assert bool(caplog.records) == is_logged
