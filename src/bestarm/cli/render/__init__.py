"""What the commands print for people: tables, bars, progress lines. No command decides anything here."""
