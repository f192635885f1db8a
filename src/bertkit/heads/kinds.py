"""Names of the heads, and which heads each kind of published model has."""

HEADS = {  # head -> True: one row of logits for each sequence; False: for each token
    "masked_lm": False,
    "next_sentence": True,
    "sequence_classification": True,
    "token_classification": False,
    "question_answering": False,
    "multiple_choice": True,
    "replaced_tokens": False,
    "vector_classification": True,
}

HEADS_WITH_LABELS = ("sequence_classification", "token_classification", "vector_classification")

KINDS = {  # model kind -> its heads
    "encoder": (),
    "pretraining": ("masked_lm", "next_sentence"),
    **{head: (head,) for head in HEADS},
}
