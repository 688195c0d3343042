//! The self-check: whether the source's own checkpoints explain the source's own images.

/// How well the source's own checkpoints explain the source's own images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// References that may need an image.
    pub references: u64,
    /// The part with an image in the source.
    pub images: u64,
    /// They should have one, and have none.
    pub absent: u64,
    /// They should have none, and have one.
    pub unpredicted: u64,
}

/// Counts, as long as all redo points are where they were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SelfCheck {
    check: Check,
    is_stopped: bool,
}

impl SelfCheck {
    /// Counts from here on.
    pub(super) fn begin(&mut self) {
        self.check = Check::default();
    }

    /// Counts no more.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// A reference that should have an image, or should not, and whether it has one.
    pub(super) fn count(&mut self, is_predicted: bool, has_image: bool) {
        if self.is_stopped {
            return;
        }
        self.check.references += 1;
        self.check.images += u64::from(has_image);
        self.check.absent += u64::from(is_predicted && !has_image);
        self.check.unpredicted += u64::from(!is_predicted && has_image);
    }

    pub(super) fn result(&self) -> Check {
        self.check
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_compared_until_it_is_stopped() {
        let mut check = SelfCheck::default();
        check.count(true, false);
        check.begin();
        for (is_predicted, has_image) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            check.count(is_predicted, has_image);
        }
        check.stop();
        check.count(true, false);
        let expected = Check { references: 4, images: 2, absent: 1, unpredicted: 1 };
        assert_eq!(check.result(), expected);
    }
}
