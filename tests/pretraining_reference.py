"""Slow reference of pre-training examples: Python integers, lists of tokens, the published algorithm.

Written from google-research/bert, create_pretraining_data.py, and SpanBERT's paper, on the same random numbers; shares
no code with bertkit.
"""

from fractions import Fraction

CLS, SEP, MASK = 2, 3, 4
_64 = 2**64


def bits(key, counter):
    z = (key + (counter + 1) * 0x9E3779B97F4A7C15) % _64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % _64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % _64
    return z ^ (z >> 31)


def key_of(seed, epoch, index):
    return bits(bits(bits(0, seed), epoch), index)


def uniform(key, counter):
    return Fraction(bits(key, counter) >> 11, 2**53)


def below(key, counter, limit):
    return (bits(key, counter) >> 32) * limit >> 32


class Draws:
    """Random numbers of a key, one after the other."""

    def __init__(self, key):
        self.key, self.counter = key, -1

    def next(self):
        self.counter += 1
        return self.key, self.counter

    def chance(self, probability):
        return uniform(*self.next()) < Fraction(probability)

    def integer(self, low, high):
        """Both ends included, as Python's randint."""
        return low + below(*self.next(), high - low + 1)


def blocks(documents, max_seqlen, seed, epoch):
    """All sequences of an epoch; documents are lists of sentences, which are lists of tokens."""
    sequences = []
    for number, document in enumerate(documents):
        tokens = [token for sentence in document for token in sentence]
        room = max_seqlen - 2
        cut = len(tokens) if len(tokens) <= room else 1 + below(key_of(seed, epoch, number), 0, room)
        while tokens:
            sequences.append([CLS, *tokens[:cut], SEP])
            tokens, cut = tokens[cut:], room
    return sequences


def pairs(documents, max_seqlen, seed, epoch, short_prob, balanced=False):
    """All (A, B, label) of an epoch."""
    balance, results = 0, []
    for number, document in enumerate(documents):
        key = key_of(seed, epoch, number)
        draws = Draws(key)
        room = max_seqlen - 3
        target = draws.integer(2, room) if draws.chance(short_prob) else room
        chunk, i, made = [], 0, 0
        while i < len(document):
            chunk.append(document[i])
            if i == len(document) - 1 or sum(map(len, chunk)) >= target:
                a_end = draws.integer(1, len(chunk) - 1) if len(chunk) >= 2 else 1
                a = [token for sentence in chunk[:a_end] for token in sentence]
                b = [token for sentence in chunk[a_end:] for token in sentence]
                if balanced:
                    even = draws.chance(0.5) if balance == 0 else draws.next() and False
                    is_random = balance < 0 or even
                    if not is_random and len(chunk) == 1:
                        if len(a) >= 2:
                            split = draws.integer(1, len(a) - 1)
                            a, b = a[:split], a[split:]
                        else:
                            is_random = True
                else:
                    is_random = len(chunk) == 1 or draws.chance(0.5)
                if is_random:
                    for _ in range(10):
                        other = draws.integer(0, len(documents) - 1)
                        if other != number:
                            break
                    b = []
                    for sentence in documents[other][draws.integer(0, len(documents[other]) - 1) :]:
                        b.extend(sentence)
                        if len(b) >= target - len(a):
                            break
                    i -= len(chunk) - a_end
                balance += 1 if is_random else -1
                cuts = Draws(bits(key, _64 - 1 - made))
                while len(a) + len(b) > room:
                    longer = a if len(a) > len(b) else b
                    del longer[0 if cuts.chance(0.5) else -1]
                results.append((a, b, int(is_random)))
                made += 1
                chunk = []
            i += 1
    return results


def ordered_pairs(documents, max_seqlen, seed, epoch):
    """All (A, B, label) of an epoch for sentence order: two consecutive texts, swapped for label 1."""
    results, room = [], max_seqlen - 3
    for number, document in enumerate(documents):
        key = key_of(seed, epoch, number)
        draws = Draws(key)
        target = draws.integer(2, room) if draws.chance(0.1) else room
        chunk, made = [], 0
        for i, sentence in enumerate(document):
            chunk.append(sentence)
            if i < len(document) - 1 and sum(map(len, chunk)) < target:
                continue
            tokens = [token for sentence in chunk for token in sentence]
            split = draws.next()
            is_swapped = draws.chance(0.5)
            if len(chunk) >= 2:
                middle = sum(map(len, chunk[: 1 + below(*split, len(chunk) - 1)]))
            else:
                middle = 1 + below(*split, len(tokens) - 1) if len(tokens) > 1 else None
            chunk = []
            if middle is None:
                continue
            a, b = tokens[:middle], tokens[middle:]
            if is_swapped:
                a, b = b, a
            cuts = Draws(bits(key, _64 - 1 - made))
            while len(a) + len(b) > room:
                longer = a if len(a) > len(b) else b
                del longer[0 if cuts.chance(0.5) else -1]
            results.append((a, b, int(is_swapped)))
            made += 1
    return results


def draws(positions, seed, epoch, index):
    """The numbers that draw the replacements at positions of a sequence."""
    key = key_of(key_of(seed, epoch, index), 2, 0)
    return [float(uniform(key, position)) for position in positions]


def drawn_token(probabilities, number):
    """The first token whose cumulative probability exceeds a number."""
    total = 0.0
    for token, probability in enumerate(probabilities):
        total += probability
        if total > number:
            return token
    return len(probabilities) - 1


def masked(tokens, rate, continues, unit, seed, epoch, index):
    """The masked tokens, and the positions of the masks."""
    key = key_of(seed, epoch, index)
    places_key, tokens_key = key_of(key, 0, 0), key_of(key, 1, 0)
    wanted = max(1, round(Fraction(rate) * len(tokens)))
    units = []
    for position, token in enumerate(tokens):
        if token in (CLS, SEP):
            continue
        joined = unit != "token" and continues[token] and units and units[-1][-1] == position - 1
        if joined:
            units[-1].append(position)
        else:
            units.append([position])
    chosen = set()
    if unit == "span":
        for turn in range(16 * (wanted + len(units))):
            if len(chosen) >= wanted:
                break
            shares = [Fraction(1, 5) * Fraction(4, 5) ** number for number in range(10)]  # of 1 to 10 words
            drawn, length = uniform(places_key, 2 * turn + 1) * sum(shares), 1
            while drawn >= sum(shares[:length]):
                length += 1
            first = below(places_key, 2 * turn, len(units))
            if units[first][0] in chosen:
                continue
            for number in range(first, min(first + length, len(units))):
                word = units[number]
                if word[0] in chosen or len(chosen) >= wanted or (chosen and len(chosen) + len(word) > wanted):
                    break
                chosen |= set(word[: wanted - len(chosen)])
                if number + 1 < len(units) and units[number + 1][0] != word[-1] + 1:
                    break
    else:
        order = list(units)
        for turn in range(len(order)):
            if len(chosen) >= wanted:
                break
            other = turn + below(places_key, turn, len(order) - turn)
            order[turn], order[other] = order[other], order[turn]
            if len(chosen) + len(order[turn]) <= wanted:
                chosen |= set(order[turn])
    out = list(tokens)
    for position in sorted(chosen):
        if not (unit == "span" and position - 1 in chosen):
            draw = uniform(tokens_key, 2 * position)
        if draw < Fraction(0.8):
            out[position] = MASK
        elif draw >= Fraction(0.9):
            out[position] = below(tokens_key, 2 * position + 1, len(continues))
    return out, sorted(chosen)
