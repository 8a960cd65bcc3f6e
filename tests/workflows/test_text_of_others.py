"""Text that others chose, in every guise, comes out of every exit as one printable line.

The commands are those of the command line, the methods those of the registry: a new one is tested without a
word here.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import typing
import unicodedata
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import zarr
from command_line import rankfold

import rankfold as rf
from rankfold.methods.registry import methods
from rankfold.pipeline.errors import InputError, RankfoldError
from rankfold.pipeline.exporting.plots.kinds import kinds_of
from rankfold.pipeline.text import Lines, json_text, printable, shell_words
from rankfold.workflows.cli import app
from rankfold.workflows.reporting import say

GUISES = {
    "escape": "a\x1b[2J\x1b]0;t\x07b",
    "newline": "a\nrankfold: all is well\nb",
    "carriage return": "a\rrankfold: all is well",
    "other line ends": "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029b",
    "tab": "a\tb",
    "direction": "a\u202egnp.\u202c\u2066\u2069\u200e\u200f\u061cb",
    "C1": "a\x9b31m\x90b",
    "no width": "a\u200b\u200c\u200d\u2060\ufeff\xad\u034f\u115f\u3164b",
    "tags": "a\U000e0041\U000e007fb",
    "delete": "a\x7fb",
    "not in XML": "a\ufffe\uffff\x01b",
}
"""Names of files and arrays, by what is wrong with them."""

ALL = "".join(GUISES.values())

ORDINARY = "ü 日本 👍🏽 e\u0301 ° € ½ عربى हिन्दी"

OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufffe\uffff\U000e0000-\U000e0fff]"
)
X = np.random.default_rng(0).random((60, 20)) + np.eye(60, 20)


def require_plain(text: str, *, lines: int | None = None) -> None:
    """Fail where a text holds what a terminal obeys, or a line that pretends to be ours."""
    assert not OBEYED.search(text), ascii(text)
    assert "\t" not in text
    assert "all is well" not in [line.removeprefix("rankfold: ") for line in text.splitlines()]
    assert lines is None or text.count("\n") <= lines


@pytest.fixture(params=GUISES)
def guise(request: pytest.FixtureRequest) -> str:
    return GUISES[request.param]


# The function --------------------------------------------------------------------------------------


def test_all_that_is_no_sign_is_escaped() -> None:
    for number in range(sys.maxunicode + 1):
        sign = chr(number)
        kind = unicodedata.category(sign)
        shown = printable(sign)
        if kind in ("Cc", "Cs", "Zl", "Zp") or OBEYED.match(sign):
            assert re.fullmatch(r"\\([nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})", shown), ascii(sign)
            assert shown.encode("ascii").decode("unicode_escape") == sign
        elif kind[0] in "LNPS" or kind in ("Zs", "Mn", "Mc", "Me"):
            assert shown == sign, ascii(sign)
    assert printable(ORDINARY) == ORDINARY
    assert printable(printable(GUISES["escape"])) == printable(GUISES["escape"])


def test_lines_are_ours_alone(guise: str) -> None:
    text = Lines("one", guise, Lines("three", "four"))
    assert text.count("\n") == 3
    require_plain(text, lines=3)
    assert printable(text) is text and str(text) is text
    assert Lines.joined("at ", text) == f"at {text}"
    assert printable(f"{text}").count("\n") == 0 or type(f"{text}") is Lines
    import pickle

    assert pickle.loads(pickle.dumps(text)) == text


def test_an_error_is_one_line_wherever_it_is_shown(guise: str) -> None:
    import pickle

    for error in (InputError(guise), InputError(f"{guise} is no matrix")):
        for shown in (str(error), str(pickle.loads(pickle.dumps(error)))):
            require_plain(shown, lines=0)
    assert str(InputError(Lines("a", "b"))) == "a\nb"


def test_every_error_of_ours_has_that_root() -> None:
    seen, left = set[type](), [RankfoldError]
    while left:
        kind = left.pop()
        seen.add(kind)
        left += [each for each in kind.__subclasses__() if each not in seen]
    for kind in seen:
        assert kind.__str__ is not RankfoldError or kind.__init__ is RankfoldError.__init__


def test_a_log_has_printable_records(guise: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rankfold"):
        logging.getLogger("rankfold").warning("%s is gone", guise)
    (record,) = caplog.records
    require_plain(record.getMessage(), lines=0)
    assert record.getMessage() == f"{printable(guise)} is gone"


def test_a_warning_is_one_line(guise: str) -> None:
    with pytest.warns(rf.RankfoldWarning) as caught:
        warnings.warn(guise, rf.RankfoldWarning, stacklevel=1)
    require_plain(str(caught[0].message), lines=0)


def test_json_is_json_and_printable(guise: str) -> None:
    text = json_text({guise: [guise]}, indent=1)
    require_plain(text)
    assert json.loads(text) == {guise: [guise]}


def test_what_is_said_is_one_line_in_any_encoding(guise: str, tmp_path: Path) -> None:
    code = "import sys; from rankfold.workflows.reporting import plain, say; sys.stdout = plain(sys.stdout); "
    code += f"say({guise + ORDINARY!r})"
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path(rf.__file__).parents[1])}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert told.stdout.isascii() and told.stdout.count(b"\n") == 1
    require_plain(told.stdout.decode(), lines=1)


# Commands ------------------------------------------------------------------------------------------


def commands() -> dict[str, Any]:
    """All commands of the command line by name."""
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def words_of(command: Any, text: str) -> list[str]:
    """A call of a command whose every path and word is a text."""
    words: list[str] = []
    for parameter in command.params:
        value = "3" if parameter.bare_type() in ("int", "float") else text
        if parameter.param_type_name == "argument":
            words.append(value)
        elif parameter.required:
            words += [parameter.opts[0], value]
    return words


@pytest.mark.parametrize("name", commands())
def test_every_command_shows_what_it_is_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if not any(p.param_type_name == "argument" or p.required for p in commands()[name].params):
        pytest.skip("takes no word")
    run = rankfold(name, *words_of(commands()[name], ALL))
    require_plain(run.output)
    assert run.exit_code in (0, 2, 3, 4), run.output
    assert "Traceback" not in run.output
    said = [line for line in run.output.splitlines() if line.startswith("rankfold: ")]
    assert len(said) <= 1


@pytest.mark.parametrize("words", [["{}"], ["svd", "--{}"], ["svd", "x", "--rank", "{}"], ["--{}"]])
def test_misspelt_words_are_quoted(words: list[str]) -> None:
    run = rankfold(*[word.format(ALL) for word in words])
    assert run.exit_code == 2
    require_plain(run.output)


# Results -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, with a store of a name that others chose, which has an array of that name."""
    monkeypatch.chdir(tmp_path)
    group = zarr.open_group(f"{ALL}.zarr", mode="w")
    group.create_array(ALL, shape=X.shape, dtype="f8")[...] = X
    yield tmp_path


def exits_of(result: rf.Result) -> Iterator[str]:
    """All that a result says of itself."""
    yield repr(result)
    yield result._repr_html_()
    with pytest.raises(AttributeError) as error:
        result.nothing  # noqa: B018
    yield str(error.value)


def test_a_result_of_it_says_so_plainly(folder: Path) -> None:
    where, out = f"{ALL}.zarr::{ALL}", f"{ALL}-r.zarr"
    run = rankfold("pca", where, "--rank", "2", "--out", out)
    assert run.exit_code == 0, run.output
    require_plain(run.output)
    for text in exits_of(rf.open_result(out)):
        require_plain(text, lines=0)
    for words in (
        ("info", where),
        ("info", out),
        ("info", out, "--json"),
        ("status", out),
        ("status", out, "--json"),
        ("plan", "pca", where, "--rank", "2"),
        ("pca", where, "--rank", "2", "--out", out),
        ("pca", where, "--rank", "2", "--out", out, "--json"),
        ("pca", where, "--rank", "3", "--out", out),
        ("check", out, where),
        ("transform", out, where, "--out", f"{ALL}-t.zarr"),
        ("verify", out),
        ("verify", out, "--json"),
        ("logs", out),
        ("cancel", out),
        ("import", where, f"{ALL}-i.zarr"),
        ("report", out, "--json"),
        ("submit", "--print", "--", "pca", where, "--rank", "2", "--out", "s.zarr"),
    ):
        told = rankfold(*words)
        assert "Traceback" not in told.output and told.exit_code in (0, 2), (words, told.output)
        require_plain(told.output)
        if "--json" in words:
            json.loads(told.stdout)


def test_its_page_and_pictures_are_well_formed(folder: Path) -> None:
    where, out = f"{ALL}.zarr::{ALL}", f"{ALL}-r.zarr"
    result = rf.pca(where, 2, out=out)
    run = rankfold("report", out, "--out", f"{ALL}.html")
    assert run.exit_code == 0, run.output
    page = Path(f"{ALL}.html").read_text()
    require_plain(page)
    assert "\nrankfold: all is well" not in page
    facts = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page, re.S)
    assert facts is not None and json.loads(facts[1])
    np.save("labels.npy", np.array([ALL, "b"])[np.arange(60) % 2])
    for kind in kinds_of(result):
        for options in [[], ["--color", "labels.npy"]] if kind == "scatter" else [[]]:
            picture = Path(f"{ALL}-{kind}-{len(options)}.svg")
            run = rankfold("plot", out, "--kind", kind, "--out", picture, *options)
            require_plain(run.output)
            assert run.exit_code == 0, run.output
            ET.fromstring(picture.read_bytes())
            require_plain(picture.read_text().replace("\t", " "))


def quoted(text: str) -> str:
    """A text in quotes of YAML."""
    return '"' + "".join(f"\\U{ord(sign):08x}" for sign in text) + '"'


def test_a_workflow_with_it_says_so_plainly(folder: Path) -> None:
    head = f"workflow: w\ninputs: {{x: {quoted(f'{ALL}.zarr::{ALL}')}}}\noutputs: {quoted(ALL)}\nstages:\n"
    for stage in (
        f"{quoted(ALL)}: {{method: svd}}",
        f"b: {{method: svd, {quoted(ALL)}: 3}}",
        "b: " + quoted(ALL),
    ):
        Path("flow.yaml").write_text(f"{head}  {stage}\n")
        for command in ("plan", "run", "status"):
            run = rankfold(command, "flow.yaml")
            assert run.exit_code == 2, run.output
            require_plain(run.output)
    Path("flow.yaml").write_text(f"{head}  a: {{method: pca, input: x, rank: 2}}\n")
    for words in (["plan"], ["run"], ["run"], ["status"], ["report"], ["run", "--json"], ["schedule"]):
        run = rankfold(words[0], "flow.yaml", *words[1:])
        assert run.exit_code == (2 if words == ["schedule"] else 0), run.output
        require_plain(run.output)
    require_plain(Path(ALL, "report.html").read_text())


def test_a_command_to_be_typed_again_is_the_same(guise: str) -> None:
    for word in (guise, f"\\'{guise}"):
        line = shell_words(["printf", "%s", word])
        require_plain(line, lines=0)
        told = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
        assert told.decode("utf-8", "surrogatepass") == word


@pytest.mark.parametrize("name", [each.name for each in methods() if each.of_matrix])
def test_every_method_of_a_matrix_names_it_plainly(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    zarr.open_group("x.zarr", mode="w").create_array(ALL, shape=X.shape, dtype="f8")[...] = X
    command = commands()[name.replace("_", "-")]
    words = [f"x.zarr::{ALL}", "--out", "r.zarr"]
    for option in ("--rank", "--k", "--radius", "--n-components", "--n-landmarks", "--n-features"):
        if any(option in parameter.opts for parameter in command.params):
            words += [option, "3"]
    for more in ([], ["--json"]):
        run = rankfold(name.replace("_", "-"), *words, *more)
        require_plain(run.output)
        assert run.exit_code == 0, run.output
    for text in exits_of(rf.open_result("r.zarr")):
        require_plain(text, lines=0)
    for told in (rankfold("info", "r.zarr"), rankfold("report", "r.zarr", "--out", "page.html")):
        assert told.exit_code == 0, told.output
        require_plain(told.output)
    require_plain(Path("page.html").read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such names")
def test_a_name_that_is_no_text_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "a\udcffb.zarr"
    zarr.save_array("x.zarr", X)
    Path("x.zarr").rename(name)
    for words in (["info", name], ["svd", name, "--rank", "2", "--out", "r.zarr"], ["plan", "svd", name]):
        run = rankfold(*words)
        assert run.exit_code == 2, run.output
        assert r"a\udcffb.zarr" in run.output and "Traceback" not in run.output
        require_plain(run.output)


def test_pictures_of_signs_that_the_font_lacks_are_drawn_without_a_word(tmp_path: Path) -> None:
    zarr.save_array(tmp_path / "日本.zarr", X)
    result = rf.pca(tmp_path / "日本.zarr", 2, out=tmp_path / "r.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result.plot(out=tmp_path / "p.svg")
    run = rankfold("report", tmp_path / "r.zarr")
    assert run.exit_code == 0 and "Glyph" not in run.output


# The source ----------------------------------------------------------------------------------------


PRINTERS = {"print", "typer.echo", "typer.secho", "click.echo", "sys.stdout.write", "sys.stderr.write"}


def test_all_text_goes_out_by_one_function() -> None:
    """Nothing is printed but by ``say``, and by progress, which has made its line printable."""
    import ast

    package = Path(rf.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTERS:
                found.add(path.relative_to(package).as_posix())
    assert found <= {"pipeline/planning/progress.py", "methods/warm.py"}, found


def test_say_takes_text_alone() -> None:
    hints = typing.get_type_hints(say)
    assert hints["text"] is str


def test_a_working_folder_that_was_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    run = rankfold("info", "x.zarr")
    assert run.exit_code and "the working folder was removed" in run.output
