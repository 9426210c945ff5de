"""What every other layer stands on: types, seeding, schedules, targets, exact MDPs."""
