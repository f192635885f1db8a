"""The classic first notebook on BERT: 2,000 tweets, three labels, a small head on a frozen encoder, ten epochs.

    python examples/classify_tweets.py [--model all-MiniLM-L6-v2] [--data ../shared/data/tweet_sentiment_extraction]

The notebook runs every tweet through the encoder in each of its ten epochs. A frozen encoder says the same each time:
here it reads each tweet once, the vectors are kept in the folder .demo, and an epoch takes milliseconds.
"""

import argparse
import csv
import sys
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from bertkit import Features

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "tweet_sentiment_extraction"
NUM_TWEETS, NUM_EPOCHS, BATCH_SIZE, LEARNING_RATE = 2_000, 10, 32, 1e-3
LABELS = ["negative", "neutral", "positive"]
PUBLISHED_LOSSES = {1: 1.0779, NUM_EPOCHS: 0.7640}  # the notebook's, with bert-base-uncased
PUBLISHED_LABELS = ["negative", "positive", "neutral", "negative", "positive", "positive"]
SENTENCES = [  # made up for this example; the notebook used six others, whose labels alone are known
    "My phone broke again and nobody at the shop wants to help me.",
    "What a lovely evening, thank you all for coming!",
    "The train to Leeds leaves at half past six.",
    "I feel awful today and I hate this weather.",
    "We won the match, I am so happy!",
    "Best coffee I have had in years.",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="all-MiniLM-L6-v2", help="a folder, a hub name or a model package")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of Kaggle's Tweet Sentiment Extraction")
    options = parser.parse_args()
    texts, labels = read_tweets(options.data / "train.csv")
    unseen_texts, unseen_labels = read_tweets(options.data / "test.csv")

    started = time.perf_counter()
    features = Features(options.model, normalize=False, cache=ROOT / ".demo" / "features")
    vectors = torch.from_numpy(features.fit_transform(texts))
    seconds = time.perf_counter() - started
    print(f"{len(texts):,} tweets -> vectors of {vectors.shape[1]} by {options.model}: {seconds:.1f} s, once\n")

    started = time.perf_counter()
    head, losses = train(vectors, torch.tensor(labels))
    print("epoch   loss   published (bert-base-uncased)")
    for epoch, loss in enumerate(losses, start=1):
        published = f"{PUBLISHED_LOSSES[epoch]:.4f}" if epoch in PUBLISHED_LOSSES else ""
        print(f"{epoch:5} {loss:.4f}   {published}".rstrip())
    print(f"{NUM_EPOCHS} epochs of the head: {time.perf_counter() - started:.1f} s")
    if options.model != "bert-base-uncased":
        print(f"{options.model} is another encoder than the notebook's: its losses are not meant to be equal.")

    predicted = head(torch.from_numpy(features.transform(SENTENCES))).argmax(1).tolist()
    print("\nhere      published for its own sentence")
    for sentence, label_id, published in zip(SENTENCES, predicted, PUBLISHED_LABELS, strict=True):
        print(f"{LABELS[label_id]:9} {published:9} {sentence}")

    unseen = features.transform(unseen_texts)
    right = (head(torch.from_numpy(unseen)).argmax(1).numpy() == unseen_labels).mean()
    logistic = make_pipeline(Normalizer(), LogisticRegression()).fit(vectors.numpy(), labels)
    print(f"\nRight about {len(unseen):,} unseen tweets: {right:.1%}")
    print(f"Logistic regression on the same vectors: {logistic.score(unseen, unseen_labels):.1%}")


def read_tweets(path: Path) -> tuple[list[str], list[int]]:
    """The first tweets of a file, and the indices of their sentiments in LABELS."""
    if not path.is_file():
        sys.exit(f"{path} is not there: fetch Kaggle's Tweet Sentiment Extraction and name its folder with --data")
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["text"].strip()][:NUM_TWEETS]
    return [row["text"].strip() for row in rows], [LABELS.index(row["sentiment"]) for row in rows]


def train(vectors: torch.Tensor, labels: torch.Tensor) -> tuple[torch.nn.Linear, list[float]]:
    """The notebook's loop, without its encoder: a linear layer, and the mean loss of every epoch."""
    torch.manual_seed(0)
    head, losses = torch.nn.Linear(vectors.shape[1], len(LABELS)), []
    optimizer = torch.optim.AdamW(head.parameters(), LEARNING_RATE)
    for _ in range(NUM_EPOCHS):
        steps = []
        for batch in torch.randperm(len(vectors)).split(BATCH_SIZE):
            loss = torch.nn.functional.cross_entropy(head(vectors[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.append(loss.item())
        losses.append(float(np.mean(steps)))
    return head, losses


if __name__ == "__main__":
    main()
