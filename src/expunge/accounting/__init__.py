"""Privacy accounting: events, composition by name, the ledger."""
