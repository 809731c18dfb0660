"""Code shared by federation and mesh: terms, identity, envelopes, inbox, outbox, pull ledger, sources."""
