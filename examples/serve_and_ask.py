"""Start a server, ask it which of some sentences means the same as a question, and stop it.

    make demo-serve

Nothing is downloaded: the model is all-MiniLM-L6-v2 from the installed package.
"""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

QUESTION = os.environ.get("QUESTION") or "Where can I sleep tonight?"
SENTENCES = ["The hotel has a free room.", "Shares fell by four percent.", "Whales are mammals.", "Dinner is at eight."]


def main() -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "bertkit", "serve", "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    try:
        url = next(ready[1] for line in server.stderr if (ready := re.search(r" ready at (\S+)", line)))
        print(f"$ curl {url}/similarity -d '...'")
        body = json.dumps({"inputs": {"source_sentence": QUESTION, "sentences": SENTENCES}}).encode()
        request = urllib.request.Request(f"{url}/similarity", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            scores = json.load(answer)
        print(QUESTION)
        for score, sentence in sorted(zip(scores, SENTENCES, strict=True), reverse=True):
            print(f"  {score:5.2f}  {sentence}")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


if __name__ == "__main__":
    main()
