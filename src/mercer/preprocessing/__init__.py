"""Between a user's table and the numbers that algorithms see: reading, checking, preparing, coding."""
