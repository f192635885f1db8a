"""bertkit inspect attention | ...: one file a command, imported when it runs."""

from cyclopts import App

VIEWS = {  # name -> (file, summary)
    "attention": ("attention", "Attention of a text: all heads, lines between tokens, query times key."),
    "fill": ("fill", "Bars for each [MASK] of a text, or the surprise of each token."),
    "lens": ("lens", "What each layer would predict at each position."),
}

command = App(name="inspect")
for name, (module, summary) in VIEWS.items():
    command.command(f"bertkit.cli.inspect.{module}:command", name=name, help=summary)
