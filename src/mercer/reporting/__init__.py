"""A fitted model on one page: `report` gathers sections, `Report` holds them and writes them down."""

from mercer.reporting.report import Report, report

__all__ = ["Report", "report"]
