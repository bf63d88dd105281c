"""The site that both masters of a benchmark serve: pillar and files, in one directory with
everything else that the benchmark writes.

The pillar is the one in site/; the files are made here, always the same ones.
"""

import pathlib
import random
import shutil
import tempfile

PILLAR = pathlib.Path(__file__).resolve().parent / "site/pillar"
# Smallest and largest of the small files, in bytes.
SMALL = (1_000, 20_000)
# Small files lie in so many directories.
DIRECTORIES = 20


class Site:
    """Makes the site in a temporary directory and removes that in the end."""

    def __init__(self, small_files, megabytes, has_files):
        self.small_files, self.megabytes, self.has_files = small_files, megabytes, has_files
        self.top = None

    def __enter__(self):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="slt-bench-", dir="/tmp"))
        shutil.copytree(PILLAR, self.top / "pillar")
        (self.top / "files/bench").mkdir(parents=True)
        if self.has_files:
            chance = random.Random(1)
            self.write_small(self.top / "files/bench/small", chance)
            self.write_large(self.top / "files/bench/large", chance)
        return self

    def __exit__(self, *_):
        # Hundreds of thousands of small files, before anybody measures anything else.
        shutil.rmtree(self.top)

    def write_small(self, directory, chance):
        for number in range(self.small_files):
            path = directory / f"part-{number % DIRECTORIES:02}/file-{number:04}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(chance.randbytes(chance.randint(*SMALL)))

    def write_large(self, directory, chance):
        directory.mkdir()
        block = bytearray(chance.randbytes(1_000_000))
        with open(directory / "image.bin", "wb") as file:
            for number in range(self.megabytes):
                # No two blocks are the same, so that one in the wrong place is seen.
                block[:8] = number.to_bytes(8, "big")
                file.write(block)

    def options(self):
        """What the masters' configuration says about it."""
        return (
            f"file_roots:\n  base:\n    - {self.top}/files\n"
            f"pillar_roots:\n  base:\n    - {self.top}/pillar\n"
            "pillar_cache: False\n"
        )
