"""Reports: tables, figures, the page."""

import os

# Figures are drawn without a backend. matplotlib cannot even be imported where this names one that is not installed, as
# in a terminal of a notebook.
os.environ.pop("MPLBACKEND", None)
