"""What variants of genomes are called, and what to do where two files count different alleles of one.

Files of one study may count the rarer allele of each, and another study has others: numbers are then 2 less
those of the first. So names end in the allele that is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NO_NAMES = ("", ".")
"""What files say of a variant without a name."""

SAME_ALLELES = (
    ". Names of variants end in the allele that is counted. Bring files to the same: "
    "`plink2 --bfile NEW --ref-allele FIT.bim 6 2 --make-bed --out ALIGNED`, and VCF to one reference"
)
"""What messages end in."""


def variant_name(place: Sequence[object], name: str, alleles: Sequence[str], counted: Sequence[str]) -> str:
    """What a variant is called: its name and the counted alleles, as ``plink --recode A`` writes it.

    One without a name has its place, contig and position, and all of its alleles in alphabetical order, so
    that files that count different alleles of it differ after the last underscore alone.

    >>> variant_name((1, 5), "rs7", ("A", "G"), ("G",)), variant_name((1, 5), ".", ("T", "C"), ("C",))
    ('rs7_G', '1:5:C:T_C')
    """
    if name in NO_NAMES:
        name = ":".join(map(str, (*place, *sorted(alleles))))
    return f"{name}_{','.join(counted) or '.'}"


def other_allele(labels: Iterable[object], wanted: str) -> str:
    """What a message ends in where a variant is there, but another allele of it is counted; else nothing."""
    name, _, counted = wanted.rpartition("_")
    pairs = ((each, each.rpartition("_")) for each in map(str, labels))
    found = [each for each, (variant, _, allele) in pairs if variant == name and allele != counted]
    return f", but {found[0]!r}, which counts another allele{SAME_ALLELES}" if name and found else ""
