"""Skip-gram and CBOW with negative sampling: the compiled inner loop (Mikolov et al. 2013, ``word2vec.c``).

A word is predicted from each word of its window (skip-gram) or from their mean (CBOW), against words drawn at random
in proportion to count ** 0.75. All words of a window share the same negative samples, whose rows then stay in the
processor's caches (Ji et al. 2016, "Parallelizing Word2Vec in Shared and Distributed Memory"). With n-grams, the vector
of a word is the mean of its word vector and n-gram vectors (Bojanowski et al. 2017).

Threads write to the same matrices without locks (Recht et al. 2011, "Hogwild"). Random numbers depend on the seed, the
epoch and the number of the sentence, so one thread gives the same bits every time.
"""

import numpy as np

from bertkit.compiled import compiled, lean_sums
from bertkit.randomness import key_of, random_bits

_LARGEST = 6.0  # beyond it the gradient of the logistic function is taken as 0
_STEPS = 1_000
LOGISTIC = (1 / (1 + np.exp(-(np.arange(2 * _STEPS + 1) - _STEPS) * _LARGEST / _STEPS))).astype(np.float32)
"""The logistic function from -6 to 6."""


@lean_sums
def train_sentences(
    ids, starts, first, last, epoch, seed, keep, shares, aliases, window, num_negatives, is_cbow, rate,
    unit_starts, units, inputs, outputs, logistic, kept, drawn, hidden, change,
):  # fmt: skip
    """Train on the sentences from ``first`` up to ``last``.

    Args:
        ids: (num_tokens,) int32 words of all sentences.
        starts: (num_sentences + 1,) int64.
        keep: (V,) float32 probability of keeping an occurrence of a word.
        shares, aliases: (V,) float32 and int32, as `alias_table` makes them.
        rate: learning rate.
        unit_starts, units: (V + 1,) int64 and int32, the rows of ``inputs`` of each word.
        inputs: (V + num_ngrams, D) float32, is written to.
        outputs: (V, D) float32, is written to.
        logistic: LOGISTIC.
        kept, drawn, hidden, change: scratch: int32 of the longest sentence and of 1 + num_negatives, (D,) float32 two.

    Returns:
        The number of words kept.
    """
    num_words, dim, total = len(keep), inputs.shape[1], 0
    rate = np.float32(rate)
    for sentence in range(first, last):
        key, counter, size = key_of(seed, epoch, sentence), 0, 0
        for at in range(starts[sentence], starts[sentence + 1]):
            word = ids[at]
            if keep[word] < 1:
                bits = random_bits(key, counter)
                counter += 1
                if np.float32(bits >> np.uint64(40)) * np.float32(1 / (1 << 24)) >= keep[word]:
                    continue
            kept[size] = word
            size += 1
        total += size
        for center in range(size):
            bits = random_bits(key, counter)
            counter += 1
            reach = window - np.int64((bits >> np.uint64(32)) * np.uint64(window) >> np.uint64(32))
            begin, end = max(center - reach, 0), min(center + reach + 1, size)
            if end - begin < 2:
                continue
            drawn[0], number = kept[center], 1
            for _ in range(num_negatives):
                bits = random_bits(key, counter)
                counter += 1
                word = np.int64((bits >> np.uint64(32)) * np.uint64(num_words) >> np.uint64(32))
                if np.float32(bits & np.uint64(0xFFFFFF)) * np.float32(1 / (1 << 24)) >= shares[word]:
                    word = np.int64(aliases[word])
                if word != drawn[0]:
                    drawn[number] = word
                    number += 1
            for other in range(begin, end):
                if other == center:
                    continue
                first_word, end_word = (begin, end) if is_cbow else (other, other + 1)
                count = 0
                for at in range(first_word, end_word):
                    if at != center:
                        for unit in range(unit_starts[kept[at]], unit_starts[kept[at] + 1]):
                            if count:
                                for column in range(dim):
                                    hidden[column] += inputs[units[unit], column]
                            else:
                                for column in range(dim):
                                    hidden[column] = inputs[units[unit], column]
                            count += 1
                if count > 1:
                    scale = np.float32(1) / np.float32(count)
                    for column in range(dim):
                        hidden[column] *= scale
                for column in range(dim):
                    change[column] = 0
                for index in range(number):
                    row, score = drawn[index], np.float32(0)
                    for column in range(dim):
                        score += hidden[column] * outputs[row, column]
                    if score >= _LARGEST or score <= -_LARGEST:
                        continue
                    near = np.int64((score + np.float32(_LARGEST)) * np.float32(_STEPS / _LARGEST) + np.float32(0.5))
                    step = (np.float32(index == 0) - logistic[near]) * rate
                    for column in range(dim):
                        change[column] += step * outputs[row, column]
                        outputs[row, column] += step * hidden[column]
                for at in range(first_word, end_word):
                    if at != center:
                        for unit in range(unit_starts[kept[at]], unit_starts[kept[at] + 1]):
                            for column in range(dim):
                                inputs[units[unit], column] += change[column]
                if is_cbow:
                    break
    return total


@compiled
def alias_table(weights):
    """Alias table for sampling in proportion to (V,) float64 weights (Walker 1977): draw an index i uniformly, and keep
    it with probability ``shares[i]``, else take ``aliases[i]``.

    Returns:
        shares (V,) float32 and aliases (V,) int32.
    """
    number = len(weights)
    scaled = weights * (number / weights.sum())
    shares, aliases = np.ones(number, np.float32), np.arange(number).astype(np.int32)
    small, large = np.empty(number, np.int64), np.empty(number, np.int64)
    num_small, num_large = 0, 0
    for index in range(number):
        if scaled[index] < 1:
            small[num_small] = index
            num_small += 1
        else:
            large[num_large] = index
            num_large += 1
    while num_small and num_large:
        num_small -= 1
        low, high = small[num_small], large[num_large - 1]
        shares[low], aliases[low] = scaled[low], high
        scaled[high] -= 1 - scaled[low]
        if scaled[high] < 1:
            num_large -= 1
            small[num_small] = high
            num_small += 1
    return shares, aliases
