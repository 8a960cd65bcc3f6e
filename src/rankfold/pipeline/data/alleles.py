"""Names of variants of genomes, and a remedy if two files count different alleles of one.

Files of one study may count the rarer allele of each variant, which may be the other allele in another study:
its numbers are then 2 minus those of the first. So names end in the allele that is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NO_NAMES = ("", ".")
"""Entries by which files mark a variant without a name."""

SAME_ALLELES = (
    ". Names of variants end in the allele that is counted. Bring files to the same: "
    "`plink2 --bfile NEW --ref-allele FIT.bim 6 2 --make-bed --out ALIGNED`, and VCF to one reference"
)
"""End of messages about differing alleles."""


def variant_name(place: Sequence[object], name: str, alleles: Sequence[str], counted: Sequence[str]) -> str:
    """Name of a variant: its name in the file and the counted alleles, as ``plink --recode A`` writes it.

    ``place`` is its contig and position, ``alleles`` are all of its alleles. Place and alleles, these in
    alphabetical order, stand in for a missing name. So files that count different alleles of a variant differ
    only after the last underscore.

    >>> variant_name((1, 5), "rs7", ("A", "G"), ("G",)), variant_name((1, 5), ".", ("T", "C"), ("C",))
    ('rs7_G', '1:5:C:T_C')
    """
    if name in NO_NAMES:
        name = ":".join(map(str, (*place, *sorted(alleles))))
    return f"{name}_{','.join(counted) or '.'}"


def other_allele(labels: Iterable[object], wanted: str) -> str:
    """End of a message about a ``wanted`` variant that is not among ``labels``.

    It says so if the variant is there with another allele counted; else it is empty.
    """
    name, _, counted = wanted.rpartition("_")
    pairs = ((each, each.rpartition("_")) for each in map(str, labels))
    found = [each for each, (variant, _, allele) in pairs if variant == name and allele != counted]
    return f", but {found[0]!r}, which counts another allele{SAME_ALLELES}" if name and found else ""
