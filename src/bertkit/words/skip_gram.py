"""Skip-gram and CBOW with negative sampling: the compiled inner loop (Mikolov et al. 2013, ``word2vec.c``).

A word is predicted from each word of its window (skip-gram) or from their mean (CBOW), against words drawn at random
in proportion to count ** 0.75. All words of a window share the same negative samples, and their vectors change
together, after all scores of the window are known (Ji et al. 2016, "Parallelizing Word2Vec in Shared and Distributed
Memory"). With n-grams, the vector of a word is the mean of its word vector and n-gram vectors (Bojanowski et al. 2017).

Threads write to the same matrices without locks (Recht et al. 2011, "Hogwild"). Random numbers depend on the seed, the
epoch and the number of the sentence, so one thread gives the same bits every time.
"""

import numpy as np

from bertkit.compiled import compiled, lean, lean_part
from bertkit.randomness import key_of, random_bits
from bertkit.words.window_step import HIDDEN_ROWS, TARGET_ROWS, add_changes, add_row, clear, scale_row


@lean
def train_sentences(
    ids, starts, first, last, epoch, seed, keep, shares, aliases, window, num_negatives, is_cbow, rate,
    unit_starts, units, inputs, outputs, kept, drawn, hidden, targets, hidden_changes, target_changes,
):  # fmt: skip
    """Train on the sentences from ``first`` up to ``last``. W columns: D and zeros up to whole vectors of sixteen.

    Args:
        ids: (num_tokens,) int32 words of all sentences.
        starts: (num_sentences + 1,) int64.
        keep: (V,) float32 probability of keeping an occurrence of a word.
        shares, aliases: (V,) float32 and int32, as `alias_table` makes them.
        rate: learning rate.
        unit_starts, units: (V + 1,) int64 and int32, the rows of ``inputs`` of each word.
        inputs: (V + num_ngrams, W) float32, is written to.
        outputs: (V, W) float32, is written to.
        kept, drawn: scratch: int32 of the longest sentence and of 1 + num_negatives.
        hidden, targets, hidden_changes, target_changes: `scratch` of 2 * window (CBOW: 1) and 1 + num_negatives rows.

    Returns:
        The number of words kept.
    """
    width, total = inputs.shape[1], 0
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
            number = _draw(key, counter, kept[center], num_negatives, shares, aliases, drawn)
            counter += num_negatives
            num_rows = 1 if is_cbow else end - begin - 1
            whole_rows, whole_targets = _whole(num_rows, HIDDEN_ROWS), _whole(number, TARGET_ROWS)
            clear(hidden, whole_rows, width)
            clear(hidden_changes, whole_rows, width)
            clear(targets, whole_targets, width)
            clear(target_changes, whole_targets, width)
            for index in range(number):
                add_row(outputs, np.int64(drawn[index]), targets, index, width)
            row, count = 0, 0
            for at in range(begin, end):
                if at != center:
                    first_unit, end_unit = unit_starts[kept[at]], unit_starts[kept[at] + 1]
                    for unit in range(first_unit, end_unit):
                        add_row(inputs, np.int64(units[unit]), hidden, row, width)
                    count += end_unit - first_unit
                    if not is_cbow:
                        if count > 1:
                            scale_row(hidden, row, 1 / count, width)
                        row, count = row + 1, 0
            if count > 1:
                scale_row(hidden, 0, 1 / count, width)
            add_changes(hidden, num_rows, targets, number, rate, hidden_changes, target_changes, width)
            row = 0
            for at in range(begin, end):
                if at != center:
                    for unit in range(unit_starts[kept[at]], unit_starts[kept[at] + 1]):
                        add_row(hidden_changes, row, inputs, np.int64(units[unit]), width)
                    row += not is_cbow
            for index in range(number):
                add_row(target_changes, index, outputs, np.int64(drawn[index]), width)
    return total


@lean_part
def _draw(key, counter, word, num_negatives, shares, aliases, drawn):
    """A word and the words drawn that are not this word; returns their number."""
    num_words = len(shares)
    drawn[0], number = word, 1
    for draw in range(num_negatives):
        bits = random_bits(key, counter + draw)
        chosen = np.int64((bits >> np.uint64(32)) * np.uint64(num_words) >> np.uint64(32))
        if np.float32(bits & np.uint64(0xFFFFFF)) * np.float32(1 / (1 << 24)) >= shares[chosen]:
            chosen = np.int64(aliases[chosen])
        if chosen != word:
            drawn[number] = chosen
            number += 1
    return number


@lean_part
def _whole(number, group):
    return (number + group - 1) // group * group


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
