"""What a trial is, how its end is judged, and what many of them come to.

A promise is kept when the answer has the same bytes as that of an undisturbed run, or when the command
refuses in one message with an exit code that is documented. Everything else is a fault: a traceback, other
bytes with exit 0, a message for every worker, a command that does not end, or something that stays behind.
"""

from __future__ import annotations

import json
import pickle
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from cases import CASES, CONSUMERS, Case
from command_client import CommandLine, Outcome
from command_server import Ending
from contents import Contents, contents
from inputs import filled, write_inputs, write_trial

if TYPE_CHECKING:
    from shim.faults import Faults

T = TypeVar("T")

SAME, ANSWERED, REFUSED, FAULT = "same bytes", "answered", "refused", "FAULT"
VERDICTS = (SAME, ANSWERED, REFUSED, FAULT)
"""``answered`` is said of hostile input, where no answer is the right one."""

THEN = ", then "
"""Between a command and the one that reads its result, in the name of what is attacked."""

REFUSALS = (2, 3, 4, 75)
NOISE = re.compile(r"^(?:.*\b\w+Warning: |Exception ignored|Task exception was never|.* - ERROR - )", re.M)
"""What Python and its libraries print by themselves."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One attack on one command."""

    kind: str
    seed: int
    number: int
    command: str
    attack: str
    target: str
    verdict: str
    code: int
    words: str
    """The first line of a refusal, or what is wrong."""

    seconds: float = 0.0

    def __str__(self) -> str:
        what = f"{self.kind} {self.number}: {self.command}, {self.attack}, {self.target}"
        return f"{what}: {self.verdict} ({self.code}) {self.words} [{self.seconds:.0f} s]"


def judge(outcome: Outcome, difference: str | None, *, must_finish: bool = False) -> tuple[str, str]:
    """A verdict and its reason.

    ``difference`` is how the answer differs from the right one: nothing if it does not, None where any answer
    is right that does not end in a fault.
    """
    if outcome.expired:
        return FAULT, f"did not end within {outcome.seconds:.0f} s"
    if "Traceback (most recent call last)" in outcome.err:
        return FAULT, f"traceback: {outcome.last_words}"
    if outcome.code == 0:
        if difference:
            return FAULT, f"exit 0, and the answer {difference}"
        noise = NOISE.search(outcome.err)
        return (FAULT, f"noise: {noise[0]}") if noise else (SAME, "")
    if outcome.code not in REFUSALS:
        return FAULT, f"exit {outcome.code}: {outcome.last_words}"
    said = [line for line in outcome.err.splitlines() if line.startswith("rankfold: ")]
    usage = "Usage:" in outcome.err
    if len(said) != 1 and not usage:
        return FAULT, f"exit {outcome.code} with {len(said)} messages: {outcome.last_words}"
    words = said[0] if said else outcome.last_words
    return (FAULT, f"must end, but is refused: {words}") if must_finish else (REFUSED, words[:300])


def chance(kind: str, seed: int, number: int) -> random.Random:
    """Draws of one trial: the same for the same three, whatever trials ran before."""
    return random.Random(f"{kind} {seed} {number}")


def moment(draw: random.Random, operations: int) -> int:
    """One of so many operations: at the same share of them, where another run takes a few more or less."""
    return 1 + int(draw.random() * max(1, operations))


# Where trials take place ---------------------------------------------------------------------------


class Bench:
    """Inputs, what undisturbed commands answer, and the folder of one trial after the other."""

    def __init__(self, folder: Path, trial: Path | None = None) -> None:
        self.folder, self.inputs = folder, folder / "inputs"
        self.trial = folder / "trial" if trial is None else trial
        self.line = CommandLine(folder / "server")
        self._lines: dict[str, CommandLine] = {}
        self._notes: dict[str, object] = {}
        self.faults: Faults | None = None
        if not (self.inputs / "written").exists():
            shutil.rmtree(self.inputs, ignore_errors=True)
            self.inputs.mkdir(parents=True)
            for words in write_inputs(self.inputs):
                outcome = self.line.run(words, self.inputs)
                if outcome.code:
                    raise RuntimeError(f"{words} failed: {outcome.err}")
            (self.inputs / "written").touch()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for line in (self.line, *self._lines.values()):
            line.close()

    def second_line(self, name: str = "second", env: Mapping[str, str] | None = None) -> CommandLine:
        """Another server of commands, for one that runs beside, or with other variables; made once."""
        if name not in self._lines:
            self._lines[name] = CommandLine(self.folder / f"server-{name}", env)
        return self._lines[name]

    def clear(self) -> None:
        """An empty folder for the next trial."""
        self.trial.mkdir(parents=True, exist_ok=True)
        for path in self.trial.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        write_trial(self.inputs, self.trial)

    def command(self, case: Case, *extra: str, **options: Any) -> Outcome:
        """Give the command of a case."""
        other = options.pop("other", "")
        words = case.command(self.inputs, self.trial, *extra, other=other)
        options.setdefault("own_interpreter", case.processes)
        command = self.line.start(words, self.folder, **options)
        outcome = command.outcome()
        command.kill()  # whether something lingers is another question: see kills
        return outcome

    def ends_again(self, case: Case, verdict: str, said: str) -> tuple[str, str]:
        """A verdict and its reason, once the same command was given again and had to end."""
        if verdict == FAULT:
            return verdict, said
        again = self.command(case)
        after, why = judge(again, self.difference(case, again), must_finish=True)
        return (FAULT, f"the command again: {why}") if after == FAULT else (verdict, said)

    def consume(self, name: str, **options: Any) -> Outcome:
        """Give a command that reads the result of a case."""
        return self.line.run(filled(CONSUMERS[name], self.inputs, self.trial), self.folder, **options)

    def stores(self, case: Case) -> Contents:
        """What the outputs of a case hold now."""
        paths = [self.trial / name for name in case.outputs]
        return contents(paths, chained=case.chained)

    def answer(self, case: Case) -> Answer:
        """What an undisturbed run of a case answers."""

        def find() -> Answer:
            self.clear()
            count = None if case.processes else Ending(str(self.trial), 0, "count")
            outcome = self.command(case, ending=count)
            if outcome.code:
                raise RuntimeError(f"{case.name} fails undisturbed ({outcome.code}): {outcome.err}")
            return Answer(outcome, self.stores(case))

        return self.once(f"answer of {case.name}", find)

    def once(self, what: str, find: Callable[[], T]) -> T:
        """What was found out of undisturbed commands, in this folder: once, and kept for later trials."""
        if what not in self._notes:
            kept = self.folder / "notes" / re.sub(r"\W+", "-", what)
            if not kept.exists():
                value = find()
                kept.parent.mkdir(exist_ok=True)
                kept.write_bytes(pickle.dumps(value))
            self._notes[what] = pickle.loads(kept.read_bytes())
        return cast("T", self._notes[what])

    def difference(self, case: Case, outcome: Outcome) -> str:
        """How the answer of a case differs from that of an undisturbed run; nothing if it does not."""
        if outcome.code:
            return ""
        right, found = self.answer(case), self.stores(case)
        if not case.outputs and _facts(outcome.out) != _facts(right.outcome.out):
            return f"prints {outcome.out[:100]!r}"
        if found.strays:
            return f"holds {found.strays[0]}"
        return found.difference(right.stores)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed and wrote."""

    outcome: Outcome
    stores: Contents


def _facts(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# Many trials ---------------------------------------------------------------------------------------


class Attack(Protocol):
    """A kind of trial: called with a bench, a seed and a number."""

    def __call__(self, bench: Bench, seed: int, number: int) -> Trial: ...


def carry_out(
    attack: Attack, bench: Bench, seed: int, numbers: Iterable[int], told: Callable[[Trial], None]
) -> list[Trial]:
    """Trials one after the other; each is told of as it ends."""
    trials = []
    for number in numbers:
        trials.append(attack(bench, seed, number))
        told(trials[-1])
    return trials


def as_json(trials: list[Trial]) -> str:
    """Trials as they are kept: a line each."""
    return "[\n" + ",\n".join(json.dumps(asdict(trial), sort_keys=True) for trial in trials) + "\n]\n"


def from_json(text: str) -> list[Trial]:
    """Trials that were kept."""
    return [Trial(**facts) for facts in json.loads(text)]


def table(trials: list[Trial]) -> str:
    """Counts of verdicts as Markdown: by kind, and by command, or family of what is hostile."""
    by_kind: dict[str, Counter[str]] = {}
    by_command: dict[str, Counter[str]] = {}
    kinds: dict[str, set[str]] = {}
    for trial in trials:
        what = trial.target if trial.kind == "hostile" else trial.command.partition(THEN)[0]
        by_kind.setdefault(trial.kind.replace("_", " "), Counter())[trial.verdict] += 1
        by_command.setdefault(what, Counter())[trial.verdict] += 1
        kinds.setdefault(what, set()).add(trial.kind)
    seeds = ", ".join(map(str, sorted({trial.seed for trial in trials})))
    lines = [f"{len(trials)} trials in all, of seed {seeds}.", "", *_head("attack")]
    lines += [_row(kind, count) for kind, count in sorted(by_kind.items())]
    lines += [_row("all", sum(by_kind.values(), Counter[str]())), "", *_head("on", "kinds of attack")]
    lines += [_row(f"{what} | {len(kinds[what])}", count) for what, count in sorted(by_command.items())]
    return "\n".join(lines)


def _head(*names: str) -> tuple[str, str]:
    counts = ("trials", *VERDICTS[:-1], "faults")
    between = "|---" + "|---:" * (len(names) - 1 + len(counts)) + "|"
    return "".join(f"| {head} " for head in (*names, *counts)) + "|", between


def _row(what: str, count: Counter[str]) -> str:
    numbers = " | ".join(str(count[verdict]) for verdict in VERDICTS)
    return f"| {what} | {count.total()} | {numbers} |"


BEGIN, END = "<!-- trials: begin -->", "<!-- trials: end -->"


def page(text: str, trials: list[Trial]) -> str:
    """A page with the table of trials between its two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or not after:
        raise ValueError(f"the page has no {BEGIN} ... {END} to put the table between")
    return f"{before}{BEGIN}\n\n{table(trials)}\n\n{END}{after}"


def turn(names: tuple[str, ...] | None, number: int, seed: int, *, processes: bool = True) -> Case:
    """The case of a trial: all have their turn, in an order that the seed decides."""
    cases = [
        one for one in CASES if (names is None or one.name in names) and (processes or not one.processes)
    ]
    order = random.Random(seed).sample(cases, len(cases))
    return order[number % len(order)]


def files_below(*folders: Path) -> Iterator[Path]:
    """All files, and folders, below some folders, in order; links are not followed."""
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            yield from sorted(folder.rglob("*"))
