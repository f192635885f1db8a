"""Files: atomic writing, JSON, and tables whose errors name the line.

Takes: paths; txt, csv, tsv, jsonl and parquet files.
Gives: rows by column, each with its line; JSON values; files written atomically.
May import: errors.
"""

from bertkit.files.bad_rows import BadRow, BadRows, SkippedRow, skipped_lines
from bertkit.files.json_files import json_value, read_json, read_json_value, write_json
from bertkit.files.lines import extension, location
from bertkit.files.whole_files import check_writable, whole_file, whole_folder

__all__ = [
    "BadRow",
    "BadRows",
    "SkippedRow",
    "check_writable",
    "extension",
    "json_value",
    "location",
    "read_json",
    "read_json_value",
    "skipped_lines",
    "whole_file",
    "whole_folder",
    "write_json",
]
