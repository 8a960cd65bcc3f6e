"""The part of ``docs/sites.md`` that follows from the profiles that come with rankfold.

After a wanted change of a profile: ``python tests/cluster/site_guide.py``, and read the difference.
"""

from __future__ import annotations

from pathlib import Path

from rankfold.cluster.profiles import shipped_profiles, summary
from rankfold.cluster.slurm.profile import read_profile
from rankfold.pipeline.units import format_bytes

GUIDE = Path(__file__).parents[2] / "docs" / "sites.md"
BEGIN = "<!-- from here on made by tests/cluster/site_guide.py -->"

FOLDERS = {
    "frontier": "/lustre/orion/FOLDER",
    "perlmutter": "$SCRATCH",
    "perlmutter-gpu": "$SCRATCH",
    "lumi-c": "/scratch/PROJECT",
    "lumi-g": "/scratch/PROJECT",
}
"""Where stores and results lie, as far as the profile or its sources say."""


def paragraphs(path: Path) -> list[str]:
    """What a profile says of itself, after its first sentence."""
    comment = [
        line.removeprefix("#").strip() for line in path.read_text().splitlines() if line.startswith("#")
    ]
    text = "\n".join(comment[1:]).replace("Not verified:", "\n\nNot verified:")
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def section(name: str, path: Path) -> str:
    """Steps for one profile."""
    profile, folder = read_profile(path), FOLDERS.get(name, "SHARED/FOLDER")
    count = profile.nodes * profile.workers_per_node
    gpus = f", {profile.gpus} GPU" if profile.gpus else ""
    nodes = f"{profile.nodes} node{'s' * (profile.nodes > 1)}"
    workers = f"{count} worker{'s' * (count > 1)} of {profile.cores} cores"
    job = (
        f"`rankfold submit` asks for {nodes} for {profile.walltime}, with {workers} and "
        f"{format_bytes(profile.memory or 0)}{gpus}; the command's own process may hold as much as one of "
        "them."
    )
    return "\n".join(
        [
            f"### {name}",
            "",
            summary(path),
            "",
            *(f"- {each}" for each in paragraphs(path)),
            f"- {job}",
            "",
            "```console",
            f"$ cd {folder}",
            f"$ rankfold profile {name} > my-{name}.yaml       # change it as said above",
            f"$ rankfold doctor --cluster my-{name}.yaml --folder {folder}",
            f"$ rankfold submit --cluster my-{name}.yaml --print -- pca store.zarr --rank 50 --out pca.zarr",
            f"$ rankfold submit --cluster my-{name}.yaml -- pca store.zarr --rank 50 --out pca.zarr",
            "```",
            "",
        ]
    )


def sections() -> str:
    """Steps for every profile."""
    return "\n".join(section(name, path) for name, path in shipped_profiles().items())


if __name__ == "__main__":
    by_hand, mark, _ = GUIDE.read_text().partition(BEGIN)
    GUIDE.write_text(f"{by_hand}{mark}\n\n{sections()}")
