"""All of BERT in one file: text to tokens, the network, its two pre-training tasks, and a training step.

    python examples/bert.py FOLDER "I [MASK] your father."             the likeliest words at [MASK]
    python examples/bert.py FOLDER "I was thirsty." "I drank water."   does the second text follow the first?
    python examples/bert.py --train TEXT.txt FOLDER                    a tiny BERT trained on your own text

FOLDER is a published BERT: config.json, model.safetensors and vocab.txt. The file is for reading, from top to bottom:
nothing in it is fast, only torch and safetensors are needed, and the network is a dictionary of tensors with their
published names. bertkit computes the same ids, outputs and losses, as a test shows.

Papers: BERT is Devlin et al. 2018, Transformer is Vaswani et al. 2017, WordPiece is Wu et al. 2016. What these leave
open is as in the published code, google-research/bert.

Letters of shapes: B sequences, L tokens of one of them, T tokens of all of them; D hidden_size, H heads of K columns
each (D = H K), F intermediate_size, V vocab_size, P masked positions.
"""

import json
import math
import random
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor


# ---- 1. Text to tokens (BERT, section 3, "Input/Output Representations"; WordPiece, section 4.1)
class Tokenizer:
    """Splits text into entries of a vocabulary, the tokens. The index of an entry is its id.

    First into words, by rules. Then each word into entries, from its start, always the longest: "unaffable" becomes
    "una", "##ffa", "##ble", where ## marks the continuation of a word. So 30,000 entries can write nearly any word, and
    frequent words are one token. The rules use Python's Unicode tables; the published tokenizer has those of Unicode 8,
    so a few hundred characters that were added or reclassified since 2015 are treated differently.
    """

    def __init__(self, tokens: list[str], *, lowercase: bool = True) -> None:
        self.tokens, self.lowercase = tokens, lowercase
        self.ids = {token: token_id for token_id, token in enumerate(tokens)}
        self.unknown, self.cls, self.sep, self.mask = (self.ids[f"[{name}]"] for name in ("UNK", "CLS", "SEP", "MASK"))

    def encode(self, text: str) -> list[int]:
        """The ids of a text. [MASK] in the text is the special token."""
        ids: list[int] = []
        for part in re.split(r"(\[MASK\])", text):
            ids += [self.mask] if part == "[MASK]" else [i for word in self.words(part) for i in self.pieces(word)]
        return ids

    def words(self, text: str) -> list[str]:
        """Words and punctuation marks; an uncased vocabulary has neither uppercase letters nor accents."""
        text = "".join(map(clean, text))
        if self.lowercase:
            letters = unicodedata.normalize("NFD", text)  # é becomes e and a combining accent, which is then dropped
            text = "".join(char.lower() for char in letters if unicodedata.category(char) != "Mn")
        return "".join(f" {char} " if is_punctuation(char) else char for char in text).split()

    def pieces(self, word: str) -> list[int]:
        """The longest entry at the start of a word, then the longest at the start of the rest, and so on."""
        if len(word) > 100:
            return [self.unknown]
        ids, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.ids:
                    break
            else:  # not even one character is an entry: the whole word is unknown
                return [self.unknown]
            ids.append(self.ids[piece])
            start = end
        return ids


def clean(char: str) -> str:
    """White space becomes a space, control characters vanish, and each Chinese character is a separate word."""
    if char in "\t\n\r" or unicodedata.category(char) in ("Zs", "Zl", "Zp"):
        return " "
    if char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cf", "Co"):
        return ""
    return f" {char} " if CHINESE.match(char) else char


CHINESE = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf"
    "\U0002f800-\U0002fa1f]"
)


def is_punctuation(char: str) -> bool:
    """Unicode's punctuation, and any ASCII character that is neither letter nor digit, such as $."""
    return unicodedata.category(char).startswith("P") or (char.isascii() and not char.isalnum() and char > " ")


# ---- 2. Tokens to a batch (BERT, section 3, and figure 2)
@dataclass
class Batch:
    """Sequences one after the other in a row without padding; attention does not cross their borders."""

    input_ids: Tensor  # (T,)
    token_type_ids: Tensor  # (T,) 0 in text A, 1 in text B
    position_ids: Tensor  # (T,) 0, 1, 2, ... in each sequence
    lengths: list[int]  # B numbers of tokens, L each


def join(tokenizer: Tokenizer, a: list[int], b: list[int] | None = None) -> tuple[list[int], list[int]]:
    """Ids and token types of [CLS] A [SEP], or of [CLS] A [SEP] B [SEP]."""
    first = [tokenizer.cls, *a, tokenizer.sep]
    second = [] if b is None else [*b, tokenizer.sep]
    return first + second, [0] * len(first) + [1] * len(second)


def pack(sequences: list[tuple[list[int], list[int]]]) -> Batch:
    """The batch of sequences as `join` makes them."""
    return Batch(
        torch.tensor([token_id for ids, _ in sequences for token_id in ids]),
        torch.tensor([token_type for _, types in sequences for token_type in types]),
        torch.tensor([position for ids, _ in sequences for position in range(len(ids))]),
        [len(ids) for ids, _ in sequences],
    )


# ---- 3. The network (BERT, section 3, "Model Architecture"; Transformer, section 3)
@dataclass(frozen=True)
class Config:
    """The sizes of a BERT, with the names of config.json; the defaults are those of BERT base."""

    vocab_size: int = 30_522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3_072
    max_position_embeddings: int = 512  # tokens of the longest sequence
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12


def initial_weights(config: Config, seed: int = 0) -> dict[str, Tensor]:
    """Every tensor of a BERT with both heads, by published name: random matrices, biases of 0, norms with factor 1."""
    width, inner = config.hidden_size, config.intermediate_size
    parts = {
        "bert.embeddings.word_embeddings": (config.vocab_size, width),
        "bert.embeddings.position_embeddings": (config.max_position_embeddings, width),
        "bert.embeddings.token_type_embeddings": (config.type_vocab_size, width),
        "bert.embeddings.LayerNorm": (width,),
    }
    for layer in (f"bert.encoder.layer.{number}" for number in range(config.num_hidden_layers)):
        parts |= {f"{layer}.attention.self.{name}": (width, width) for name in ("query", "key", "value")}
        parts |= {f"{layer}.attention.output.dense": (width, width), f"{layer}.attention.output.LayerNorm": (width,)}
        parts |= {f"{layer}.intermediate.dense": (inner, width)}
        parts |= {f"{layer}.output.dense": (width, inner), f"{layer}.output.LayerNorm": (width,)}
    parts |= {"bert.pooler.dense": (width, width), "cls.seq_relationship": (2, width)}
    parts |= {"cls.predictions.transform.dense": (width, width), "cls.predictions.transform.LayerNorm": (width,)}
    weights = {"cls.predictions.bias": torch.zeros(config.vocab_size)}
    std, generator = config.initializer_range, torch.Generator().manual_seed(seed)
    for name, shape in parts.items():
        weights[f"{name}.weight"] = matrix = torch.ones(shape)
        if matrix.dim() == 2:
            torch.nn.init.trunc_normal_(matrix, 0.0, std, -2 * std, 2 * std, generator)
        if not name.endswith("_embeddings"):
            weights[f"{name}.bias"] = torch.zeros(shape[0])
    return weights


class Bert:
    """The network: a dictionary of tensors by published name, and what is computed with them."""

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        self.config, self.is_training = config, False  # dropout is for training only
        self.weights = {name: tensor.requires_grad_() for name, tensor in weights.items()}

    def linear(self, x: Tensor, name: str) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Layer normalization: each row gets mean 0 and variance 1, then a learned factor and offset per column."""
        centered = x - x.mean(dim=-1, keepdim=True)
        variance = centered.square().mean(dim=-1, keepdim=True)
        scaled = centered / (variance + self.config.layer_norm_eps).sqrt()
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def dropout(self, x: Tensor) -> Tensor:
        """In training, random values become 0, and the others grow to keep the mean as it was (Transformer, 5.4)."""
        return F.dropout(x, self.config.hidden_dropout_prob, self.is_training)

    def embed(self, batch: Batch) -> Tensor:
        """A batch to (T, D): a row of each of three tables, added (BERT, figure 2). Positions are learned."""
        longest, most = max(batch.lengths), self.config.max_position_embeddings
        if longest > most:
            raise ValueError(f"a text has {longest} tokens, and this model reads up to {most}: shorten it")
        x = self.weights["bert.embeddings.word_embeddings.weight"][batch.input_ids]
        x = x + self.weights["bert.embeddings.position_embeddings.weight"][batch.position_ids]
        x = x + self.weights["bert.embeddings.token_type_embeddings.weight"][batch.token_type_ids]
        return self.dropout(self.norm(x, "bert.embeddings.LayerNorm"))

    def attention(self, x: Tensor, lengths: list[int], name: str) -> Tensor:
        """Each token collects information from all tokens of its sequence (Transformer, 3.2.1 and 3.2.2).

        A head compares the query of a token with the keys of all tokens, and averages their values with the resulting
        weights. The heads do so side by side, in K columns each, and a matrix mixes them. (T, D) to (T, D).
        """
        heads = (self.config.num_attention_heads, -1)
        query, key, value = (
            self.linear(x, f"{name}.self.{part}").unflatten(-1, heads).transpose(0, 1)  # (T, D) to (H, T, K)
            for part in ("query", "key", "value")
        )
        contexts = []
        for q, k, v in zip(query.split(lengths, 1), key.split(lengths, 1), value.split(lengths, 1), strict=True):
            scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])  # (H, L, L): row = token, column = other token
            probs = F.dropout(scores.softmax(dim=-1), self.config.attention_probs_dropout_prob, self.is_training)
            contexts.append(probs @ v)  # (H, L, K)
        context = torch.cat(contexts, dim=1).transpose(0, 1).flatten(1)  # (H, T, K) to (T, D)
        return self.linear(context, f"{name}.output.dense")

    def layer(self, x: Tensor, lengths: list[int], name: str) -> Tensor:
        """Attention, then the same small network for each token by itself, to F columns and back (Transformer, 3.3).

        Each result is added to its input, and the sum is normalized (Transformer, 3.1). (T, D) to (T, D).
        """
        attended = self.dropout(self.attention(x, lengths, f"{name}.attention"))
        x = self.norm(x + attended, f"{name}.attention.output.LayerNorm")
        expanded = gelu(self.linear(x, f"{name}.intermediate.dense"))  # (T, F)
        projected = self.dropout(self.linear(expanded, f"{name}.output.dense"))
        return self.norm(x + projected, f"{name}.output.LayerNorm")

    def encode(self, batch: Batch) -> Tensor:
        """A batch to (T, D): one vector for each token, which depends on the tokens to its left and right."""
        x = self.embed(batch)
        for number in range(self.config.num_hidden_layers):
            x = self.layer(x, batch.lengths, f"bert.encoder.layer.{number}")
        return x

    def pool(self, hidden: Tensor, lengths: list[int]) -> Tensor:
        """(T, D) to (B, D): the vector of each [CLS], through a linear layer and tanh."""
        first = torch.tensor([0, *lengths[:-1]]).cumsum(0)  # (B,) the index of each [CLS]
        return self.linear(hidden[first], "bert.pooler.dense").tanh()

    def masked_lm(self, hidden: Tensor) -> Tensor:
        """(P, D) to (P, V) scores: each vector is compared with the embedding of each entry (BERT, 3.1, task 1)."""
        x = gelu(self.linear(hidden, "cls.predictions.transform.dense"))
        x = self.norm(x, "cls.predictions.transform.LayerNorm")
        return x @ self.weights["bert.embeddings.word_embeddings.weight"].T + self.weights["cls.predictions.bias"]

    def next_sentence(self, pooled: Tensor) -> Tensor:
        """(B, D) to (B, 2) scores: text B follows text A; text B is random (BERT, 3.1, task 2)."""
        return self.linear(pooled, "cls.seq_relationship")


def gelu(x: Tensor) -> Tensor:
    """x times the probability that a standard normal number is below x: a smooth version of max(x, 0) (BERT, A.2)."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


# ---- 4. Published folders
def load(folder: Path) -> tuple[Bert, Tokenizer]:
    """The network and tokenizer of a folder, in float32; using a head that the folder lacks raises a KeyError."""
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if values.get("model_type", "bert") != "bert" or values.get("hidden_act", "gelu") != "gelu":
        raise ValueError(f"{folder}: expected model_type=bert and hidden_act=gelu, which is what this file computes")
    config = Config(**{field.name: values[field.name] for field in fields(Config) if field.name in values})
    weights = {}
    for stored, tensor in load_file(folder / "model.safetensors").items():
        name = stored.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if name.startswith(("embeddings.", "encoder.", "pooler.")):  # an encoder that was saved without heads
            name = f"bert.{name}"
        if tensor.is_floating_point() and "decoder" not in name:  # the decoder is a copy of the word embedding
            weights[name] = tensor.float()
    options = folder / "tokenizer_config.json"
    lowercase = json.loads(options.read_text(encoding="utf-8")).get("do_lower_case", True) if options.exists() else True
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return Bert(config, weights), Tokenizer(tokens, lowercase=lowercase)


def save(model: Bert, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a folder that `load` opens, as do bertkit and transformers."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "bert", "architectures": ["BertForPreTraining"], **asdict(model.config)}
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": tokenizer.lowercase}), encoding="utf-8")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokenizer.tokens), encoding="utf-8")
    weights = {name: tensor.detach() for name, tensor in model.weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


# ---- 5. Using it
@torch.no_grad()
def fill_mask(model: Bert, tokenizer: Tokenizer, text: str, top_k: int = 5) -> list[list[tuple[str, float]]]:
    """The likeliest tokens and their probabilities, for each [MASK] of a text."""
    batch = pack([join(tokenizer, tokenizer.encode(text))])
    masked = (batch.input_ids == tokenizer.mask).nonzero().flatten()  # (P,)
    best = model.masked_lm(model.encode(batch)[masked]).softmax(dim=-1).topk(top_k)  # values and indices: (P, top_k)
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [[(tokenizer.tokens[token_id], prob) for token_id, prob in zip(*row, strict=True)] for row in rows]


@torch.no_grad()
def next_sentence_prob(model: Bert, tokenizer: Tokenizer, a: str, b: str) -> float:
    """The probability that text B follows text A."""
    batch = pack([join(tokenizer, tokenizer.encode(a), tokenizer.encode(b))])
    logits = model.next_sentence(model.pool(model.encode(batch), batch.lengths))  # (1, 2)
    return float(logits.softmax(dim=-1)[0, FOLLOWS])


# ---- 6. Examples to learn from (BERT, sections 3.1 and A.2): no labels are needed, only text
FOLLOWS, RANDOM = 0, 1  # the two labels of next sentence prediction
Pair = tuple[list[int], list[int], int]  # A, B and the label
Example = tuple[Batch, Tensor, Tensor, Tensor]  # masked; (P,) masked positions, (P,) original tokens, (B,) labels


def sentence_pairs(documents: list[list[list[int]]], number: int, room: int, rng: random.Random) -> Iterator[Pair]:
    """The (A, B, label) of one document, a list of sentences of ids. A and B together have about ``room`` tokens.

    Sentences are gathered until there are enough tokens, and divided after one of them. The first part is A. In half of
    the cases the rest is B. In the others B is a span of another document, and the rest is used for the next pair. A
    single sentence has no rest, so its B is always random. One document in ten has shorter spans, as texts have in use.
    """
    document = documents[number]
    target = rng.randint(2, room) if rng.random() < 0.1 else room
    start = end = 0
    while end < len(document):
        end += 1
        if end < len(document) and sum(map(len, document[start:end])) < target:
            continue
        split = start + rng.randint(1, end - start - 1) if end - start > 1 else end
        a, b, label = list(chain(*document[start:split])), list(chain(*document[split:end])), FOLLOWS
        if not b or rng.random() < 0.5:
            other = number
            while other == number:
                other = rng.randint(0, len(documents) - 1)
            b, label, end = [], RANDOM, split
            for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
                b = b + sentence
                if len(a) + len(b) >= target:
                    break
        yield a, b, label
        start = end


def shorten(a: list[int], b: list[int], room: int, rng: random.Random) -> None:
    """Remove tokens from the longer of two spans, at its front or its end, until both fit into ``room`` tokens."""
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        del longer[0 if rng.random() < 0.5 else -1]


def mask(ids: list[int], tokenizer: Tokenizer, rng: random.Random) -> tuple[list[int], list[int]]:
    """The ids to read, and the positions whose original token is to be predicted: 15 % of them (BERT, 3.1, task 1).

    Of these 80 % become [MASK], 10 % become a random token, and 10 % stay. So any token may have to be predicted, and
    the network learns a good vector for each of them, not only for [MASK], which texts in use do not have.
    """
    candidates = [position for position, token in enumerate(ids) if token not in (tokenizer.cls, tokenizer.sep)]
    rng.shuffle(candidates)
    positions, masked = sorted(candidates[: max(1, round(0.15 * len(ids)))]), list(ids)
    for position in positions:
        draw = rng.random()
        if draw < 0.8:
            masked[position] = tokenizer.mask
        elif draw >= 0.9:
            masked[position] = rng.randrange(len(tokenizer.tokens))
    return masked, positions


def make_example(pairs: list[Pair], tokenizer: Tokenizer, rng: random.Random) -> Example:
    """Join, mask and pack pairs: what one training step learns from."""
    sequences, positions, labels, num_tokens = [], [], [], 0
    for a, b, _ in pairs:
        ids, types = join(tokenizer, a, b)
        masked, chosen = mask(ids, tokenizer, rng)
        sequences.append((masked, types))
        positions += [num_tokens + position for position in chosen]
        labels += [ids[position] for position in chosen]
        num_tokens += len(ids)
    next_sentence_label = torch.tensor([label for *_, label in pairs])
    return pack(sequences), torch.tensor(positions), torch.tensor(labels), next_sentence_label


# ---- 7. A training step (BERT, section A.2)
def pretraining_loss(model: Bert, example: Example) -> Tensor:
    """The mean of -log p, p being the probability of the original token, plus the same for next sentences, in nats."""
    batch, masked_positions, labels, next_sentence_label = example
    hidden = model.encode(batch)  # (T, D)
    token_logits = model.masked_lm(hidden[masked_positions])  # (P, V)
    pair_logits = model.next_sentence(model.pool(hidden, batch.lengths))  # (B, 2)
    return F.cross_entropy(token_logits, labels) + F.cross_entropy(pair_logits, next_sentence_label)


class AdamW:
    """Adam (Kingma & Ba 2014) with weight decay apart from the gradient, and without bias correction, as published.

    Each weight moves against the running mean of its gradients, divided by their running size. So steps have about the
    size of the learning rate for every weight. Decay pulls matrices to 0, but neither biases nor layer normalization.
    """

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights
        self.means, self.squares = ({name: torch.zeros_like(weights[name]) for name in weights} for _ in range(2))

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Change the weights by their gradients, and clear these."""
        for name, weight in self.weights.items():
            mean, square, gradient = self.means[name], self.squares[name], weight.grad
            if gradient is None:
                continue
            mean.mul_(0.9).add_(gradient, alpha=0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            decay = 0.01 if weight.dim() == 2 else 0.0
            weight -= learning_rate * (mean / (square.sqrt() + 1e-6) + decay * weight)
            weight.grad = None


def learning_rate_at(step: int, num_steps: int, num_warmup: int, peak: float) -> float:
    """Up in a line during warm-up, while the running means are still rough; then down in a line to 0 at the end."""
    return peak * (step / num_warmup if step < num_warmup else 1 - step / num_steps)


def training_step(model: Bert, optimizer: AdamW, example: Example, learning_rate: float) -> float:
    """Compute the loss and its gradients, clip these to a joint length of at most 1, and update the weights."""
    model.is_training = True
    loss = pretraining_loss(model, example)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.weights.values(), 1.0)
    optimizer.step(learning_rate)
    model.is_training = False
    return loss.item()


# ---- 8. A tiny BERT from a text file
def read_documents(text: str) -> list[list[str]]:
    """Paragraphs between empty lines, as lists of sentences, which end with a period, question or exclamation mark."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]
    return [re.split(r"(?<=[.!?])\s+", paragraph) for paragraph in paragraphs]


def make_vocabulary(text: str, size: int = 4_000) -> list[str]:
    """Special tokens, characters and the most frequent words; published ones also have parts of words such as ##ing."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    counts = Counter(Tokenizer(special).words(text))
    characters = sorted({char for word in counts for char in word})
    frequent = [word for word, _ in counts.most_common() if len(word) > 1]
    return [*special, *characters, *(f"##{char}" for char in characters), *frequent][:size]


def train(text: str, num_steps: int = 600, batch_size: int = 32, max_seqlen: int = 64) -> tuple[Bert, Tokenizer]:
    """Pre-train a BERT of two layers with 128 columns on a text, and print its losses."""
    tokenizer, rng, room = Tokenizer(make_vocabulary(text)), random.Random(0), max_seqlen - 3
    documents = [[tokenizer.encode(sentence) for sentence in document] for document in read_documents(text)]
    if len(documents) < 2:
        raise ValueError("expected two documents or more, separated by empty lines: a random B is from another one")
    config = Config(
        vocab_size=len(tokenizer.tokens), hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=512, max_position_embeddings=max_seqlen,
    )  # fmt: skip
    model = Bert(config, initial_weights(config))
    optimizer, losses, pairs = AdamW(model.weights), [], []
    for step in range(num_steps):
        while len(pairs) < batch_size:  # another pass over all documents, in which spans, pairs and masks differ
            epoch = [pair for number in range(len(documents)) for pair in sentence_pairs(documents, number, room, rng)]
            rng.shuffle(epoch)
            pairs += epoch
        chosen, pairs = pairs[:batch_size], pairs[batch_size:]
        for a, b, _ in chosen:
            shorten(a, b, room, rng)
        rate = learning_rate_at(step, num_steps, num_warmup=num_steps // 10, peak=1e-3)
        losses.append(training_step(model, optimizer, make_example(chosen, tokenizer, rng), rate))
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} of {num_steps}: loss {sum(losses[-50:]) / 50:.2f}", flush=True)
    return model, tokenizer


def main(arguments: list[str]) -> None:
    """The three commands at the top of this file."""
    match arguments:
        case ["--train", text, folder]:
            save(*train(Path(text).read_text(encoding="utf-8")), Path(folder))
        case [folder, text] if "[MASK]" in text:
            for candidates in fill_mask(*load(Path(folder)), text):
                print("  ".join(f"{token} {prob:.3f}" for token, prob in candidates))
        case [folder, a, b]:
            print(f"{next_sentence_prob(*load(Path(folder)), a, b):.3f}")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
