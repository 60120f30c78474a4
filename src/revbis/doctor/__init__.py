"""What this machine can do, what is missing and how to fix it."""

from revbis.doctor.examination import examine
from revbis.doctor.report import Finding, Health, Report

__all__ = ["Finding", "Health", "Report", "examine"]
