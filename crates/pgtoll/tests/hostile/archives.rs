//! Archives that are cut short, incomplete, or larger than they look.
