"""The log of a server as JSON lines."""

import json
import logging
import time

REQUESTS = "bertkit.serving.requests"
"""Name of the logger of requests, whose messages are JSON lines already."""


class JsonLines(logging.Formatter):
    """Each message as a JSON object with its time (UTC), level and, for an unexpected exception, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or as many as a message of `REQUESTS` has."""
        if record.name == REQUESTS:
            return record.getMessage()
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
