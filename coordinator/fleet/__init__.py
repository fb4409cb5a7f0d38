"""Workers: sessions with them and the choice among them. Carries ids, has never heard of text."""
