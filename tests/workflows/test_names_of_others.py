"""What others have written, as names of arrays, columns and stages, is shown and never obeyed: not by a
terminal, not by a browser. What is secret is nowhere written down.
"""

from __future__ import annotations

import html.parser
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from command_line import rankfold

import rankfold as rf
from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.submission import job_script
from rankfold.pipeline.errors import printable
from rankfold.pipeline.formats.remote import _reason
from rankfold.workflows.reporting import PlainText, report_errors

ESCAPES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CLEAR = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e"
X = np.random.default_rng(0).random((40, 6))

# Terminals -----------------------------------------------------------------------------------------


def hostile_store(folder: Path) -> Path:
    group = zarr.open_group(folder / "x.zarr", mode="w")
    for name in (f"a{CLEAR}", f"b{CLEAR}"):
        group.create_array(name, shape=X.shape, dtype="f8")[...] = X
    return folder / "x.zarr"


@pytest.mark.parametrize(
    "words",
    [
        ("info", "x.zarr"),
        ("svd", "x.zarr", "--rank", "2", "--out", "r.zarr"),
        ("svd", f"x.zarr::a{CLEAR}", "--rank", "2", "--out", "r.zarr"),
        ("info", "r.zarr"),
        ("plan", "pca", f"x.zarr::a{CLEAR}", "--rank", "2"),
        ("import", "t.csv", "t.zarr"),
        ("plan", "flow.yaml"),
        ("run", f"{CLEAR}.yaml"),
        ("status", f"{CLEAR}"),
        ("pca", f"{CLEAR}", "--rank", "2", "--out", "r.zarr"),
    ],
    ids=lambda words: printable(" ".join(words))[:40],
)
def test_a_terminal_is_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    hostile_store(tmp_path)
    rf.svd(f"x.zarr::a{CLEAR}", 2, out="r.zarr")
    (tmp_path / "t.csv").write_text(f"a{CLEAR},b\n1,x{CLEAR}\n")
    (tmp_path / "flow.yaml").write_text('workflow: w\n"\\e[2J": 1\ninputs: {x: "\\a\\e"}\n')
    run = rankfold(*words)
    assert run.output and not ESCAPES.search(run.output)
    assert "Traceback" not in run.output


def test_all_that_a_command_writes_passes_the_filter(capsys: pytest.CaptureFixture[str]) -> None:
    with report_errors(False):
        assert isinstance(sys.stdout, PlainText) and isinstance(sys.stderr, PlainText)
        print(f"out{CLEAR}\tx")
        print(f"err{CLEAR}", file=sys.stderr)
    assert not isinstance(sys.stdout, PlainText)
    out, err = capsys.readouterr()
    assert out == printable(f"out{CLEAR}") + "\tx\n" and err == printable(f"err{CLEAR}") + "\n"


def test_errors_in_python_hold_no_escapes_either(tmp_path: Path) -> None:
    with pytest.raises(rf.RankfoldError) as error:
        rf.open(tmp_path / f"none{CLEAR}")
    assert "none\\x1b[2J" in str(error.value) and not ESCAPES.search(str(error.value))


# Browsers ------------------------------------------------------------------------------------------


MARKUP = "<img src=x onerror=alert(1)>"


class Elements(html.parser.HTMLParser):
    """Elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def assert_harmless(text: str) -> None:
    for tag, attributes in Elements(text).found:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert attributes.get("src", "").startswith(("", "data:")) and attributes.get("src") != "x"
        assert tag != "script" or attributes.get("type") == "application/json"
    # The numbers of the page end where they should.
    assert all("</script" not in part.partition("</script>")[0] for part in text.split("<script")[1:])


def test_a_report_shows_markup_as_text(tmp_path: Path) -> None:
    folder = tmp_path / MARKUP.replace("/", "")
    folder.mkdir()
    zarr.open_group(folder / "x.zarr", mode="w").create_array(f"a{MARKUP}", shape=X.shape, dtype="f8")[
        ...
    ] = X
    rf.svd(f"{folder}/x.zarr::a{MARKUP}", 2, out=folder / f"r{MARKUP}.zarr")
    run = rankfold("report", folder / f"r{MARKUP}.zarr", "--out", tmp_path / "page.html")
    assert run.exit_code == 0, run.output
    text = (tmp_path / "page.html").read_text()
    assert "&lt;img src=x" in text
    assert_harmless(text)


def test_a_result_in_a_notebook_shows_markup_as_text(tmp_path: Path) -> None:
    rf.svd(X, 2, out=tmp_path / "r.zarr")
    group: Any = zarr.open_group(tmp_path / "r.zarr", mode="r+", use_consolidated=False)
    facts = dict(group.attrs["rankfold"])
    facts["input"] = {**facts["input"], "name": MARKUP}
    group.attrs["rankfold"] = {**facts, "kind": MARKUP, "stopped": MARKUP} | {
        "request": {**facts["request"], "kind": MARKUP}
    }
    (tmp_path / "r.zarr" / "manifest.json").unlink()
    assert_harmless(rf.open_result(tmp_path / "r.zarr")._repr_html_())


# Secrets -------------------------------------------------------------------------------------------


SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "hush-aws-0123456789",
    "AWS_SESSION_TOKEN": "hush-token-0123456789",
    "AZURE_STORAGE_SAS_KEY": "sv=2026&sig=hush-azure-0123456789",
    "SOME_PASSWORD": "hush-password-0123456789",
}


def files_with(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.mark.process
@pytest.mark.slow
def test_no_file_of_a_run_repeats_the_environment(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    common = [sys.executable, "-m", "rankfold"]
    place = {"cwd": tmp_path, "env": {**os.environ, **SECRETS}, "capture_output": True, "text": True}
    told = ""
    for words in (
        ["pca", "x.npy", "--rank", "2", "--workers", "2", "--memory", "200MiB", "--out", "r.zarr"],
        ["report", "r.zarr", "--out", "page.html"],
        ["submit", "--print", "--", "pca", "x.npy", "--rank", "2", "--memory", "200MiB", "--out", "s.zarr"],
    ):
        ended = subprocess.run([*common, *words], check=False, **place)  # type: ignore[call-overload]
        assert ended.returncode == 0, ended.stderr
        told += ended.stdout + ended.stderr
    assert list((tmp_path / "r.zarr.run" / "logs").iterdir())
    assert "hush" not in told and not files_with("hush", tmp_path)


def test_a_job_script_repeats_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    assert "hush" not in job_script(["rankfold", "run", "flow.yaml"], Profile(), name="t")


@pytest.mark.parametrize(
    "address",
    [
        "s3://KEY:hush@bucket/x.zarr",
        "s3://hush@bucket/x.zarr",
        "s3://bucket/x.zarr?X-Amz-Signature=hush",
        "az://container/x.zarr?sig=hush",
        "abfs://container:hush@account/x.zarr",
        "https://me:hush@site/x.zarr",
    ],
)
@pytest.mark.parametrize("command", ["svd", "import", "info", "flow"])
def test_an_address_with_a_secret_is_refused_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if command == "flow":
        stage = "{a: {method: pca, input: x, rank: 2}}"
        (tmp_path / "f.yaml").write_text(
            f'workflow: w\ninputs: {{x: "{address}"}}\noutputs: out\nstages: {stage}\n'
        )
        run = rankfold("run", "f.yaml")
        (tmp_path / "f.yaml").unlink()
    else:
        words = {"svd": ["--rank", "2", "--out", "r.zarr"], "import": ["r.zarr"], "info": []}[command]
        run = rankfold(command, address, *words)
    assert run.exit_code == 2 and "has a key or a token in it" in run.output
    assert "hush" not in run.output and not files_with("hush", tmp_path)


@pytest.mark.parametrize("address", ["abfs://container@account/x.zarr", "s3://bucket/x@y:z.zarr::a"])
def test_an_address_without_one_is_not(address: str) -> None:
    with pytest.raises(rf.RankfoldError) as error:
        rf.open(address)
    assert "key or a token" not in str(error.value)


def test_signatures_in_what_a_store_says_are_left_out() -> None:
    said = OSError("error for url (https://a.blob.core.windows.net/c/x?sv=1&sig=hush): timeout\nmore")
    assert _reason(said) == "error for url (https://a.blob.core.windows.net/c/x?...): timeout"
