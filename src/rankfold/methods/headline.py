"""One line of text on a finished result, as commands print it at their end: method, quality and cost.

A method whose results have facts of their own declares such a function as ``Method.headline``. This module
has the function of all other methods, and texts that several of these functions share. ``facts`` are the
metadata of the result, ``attempt`` those of its last run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]


def headline_of_factors(facts: Facts, attempt: Facts) -> str:
    """Line on components and their accuracy, from facts of the result; ``attempt`` is not used."""
    line = f"{facts['kind']} by {facts['method']}{effort(facts)}"
    if "trace_error" in facts:
        line += f"; leaves out {facts['trace_error']:.3g} of the trace"
    if facts["request"].get("adaptive"):
        left_out, tol = facts["approximation_error"], facts["request"]["tol"]
        line += f"; leaves out {left_out:.2g} of the norm, tol {tol:g}"
    if "captured" in facts:
        error, captured = facts["largest_error_estimate"], 100 * facts["captured"]
        return f"{line}; largest estimated error {error:.1e}, captured {captured:.4g} %"
    if "relative_error" in facts:
        return f"{line}; relative error {facts['relative_error']:.4g}"
    if "largest_residual" in facts:
        return f"{line}; {residuals(facts)}"
    if facts.get("orthogonality") is not None:
        return f"{line}; Q is orthonormal to {facts['orthogonality']:.1e}"
    return line


def headline_of_share(facts: Facts, attempt: Facts) -> str:
    """Line on a share of kept neighbors, with its standard error if any; ``attempt`` is not used."""
    error = f" ± {facts['standard_error']:.1g}" if facts["standard_error"] else ""
    return f"{facts['kind'].replace('_', ' ')} {facts['value']:.6g}{error}, k {facts['request']['k']}"


def effort(facts: Facts) -> str:
    """Text such as ``", rank 10, 3 passes"`` from facts of a result, without the rank where there is none."""
    rank = facts.get("rank", facts["request"].get("rank"))
    return f", rank {rank}" * (rank is not None) + f", {passes(facts)}"


def passes(facts: Facts) -> str:
    """Text such as ``"3 passes"``: the number of reads of the matrix, from facts of a result."""
    return f"{facts['passes']} pass{'es' * (facts['passes'] != 1)}"


def dimensions(facts: Facts) -> str:
    """Text such as ``"umap of 1000 rows in 2 dimensions"``, from facts of an embedding."""
    kind, rows = facts["kind"].replace("_", " "), facts["input"]["shape"][0]
    return f"{kind} of {rows} rows in {facts['request']['n_components']} dimensions"


def neighborhoods(facts: Facts) -> str:
    """Text on trustworthiness, continuity and preservation of an embedding; empty if not measured."""
    if "trustworthiness" not in facts:
        return ""
    shares = (f"{name} {facts[name]:.4f}" for name in ("trustworthiness", "continuity", "preservation"))
    return f"; {', '.join(shares)} by {facts['quality_rows']} rows and {facts['quality_k']} neighbors"


def unexplained(facts: Facts) -> str:
    """Text on the share of the variance of path lengths that distances in an embedding do not explain."""
    error = f" ± {facts['standard_error']:.1g}" if facts["standard_error"] else ""
    return f"residual variance {facts['residual_variance']:.3g}{error}"


def residuals(facts: Facts) -> str:
    """Text on residuals and orthogonality of the factors of a result, from facts of a check of these."""
    return (
        f"largest residual {facts['largest_residual']:.1e} of the largest singular value; left factor "
        f"orthonormal to {facts['left_orthogonality']:.1e}, right to {facts['right_orthogonality']:.1e}"
    )
