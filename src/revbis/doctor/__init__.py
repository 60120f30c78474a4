"""What this machine can do, what is missing and how to fix it."""

from revbis.doctor.examination import Finding, Health, Report, examine

__all__ = ["Finding", "Health", "Report", "examine"]
