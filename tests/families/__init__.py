"""The architectures as `exactness` checks them: a file for each in this folder."""

from importlib import import_module
from pathlib import Path

from exactness import Family

FAMILIES: dict[str, Family] = {}
for _file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    for _family in import_module(f"families.{_file.stem}").__dict__.values():
        if isinstance(_family, Family):
            FAMILIES[_family.model_type] = _family
