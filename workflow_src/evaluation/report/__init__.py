"""Reports: tables, figures, the page."""
