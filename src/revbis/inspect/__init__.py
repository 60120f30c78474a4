"""Looking at a trained agent: neighbours and videos."""
