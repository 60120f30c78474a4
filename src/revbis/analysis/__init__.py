"""From run folders to scores, statistics, tables, figures and a page."""
