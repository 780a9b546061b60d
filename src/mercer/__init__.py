"""Large kernel machines that choose their own basis vectors."""
