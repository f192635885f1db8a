"""Reports: pages of training runs and of evidence, and model cards.

Takes: the folder of a run; the evidence on a model; facts of a fine-tuned model.
Gives: self-contained HTML pages (`reports.training`, `reports.evidence`) and Markdown (`reports.model_card`).
May import: advice, errors, files, locate, tasks, checkpoint, pages, evidence.

Import the file that is needed: the report of a training run opens without torch.
"""
