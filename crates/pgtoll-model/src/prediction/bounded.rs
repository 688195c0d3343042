//! Estimates with bounds, and how independent errors combine.

/// An estimate between two bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounded {
    /// The estimate.
    pub estimate: f64,
    /// The lower bound.
    pub lower: f64,
    /// The upper bound.
    pub upper: f64,
}

impl Bounded {
    /// Nothing, for certain.
    pub const ZERO: Self = Self::exact(0.0);

    /// A value without an error.
    pub const fn exact(value: f64) -> Self {
        Self { estimate: value, lower: value, upper: value }
    }

    /// Bounds and an estimate between them, which is moved to the nearer bound where it is not.
    pub fn new(estimate: f64, lower: f64, upper: f64) -> Self {
        let upper = upper.max(lower);
        Self { estimate: estimate.clamp(lower, upper), lower, upper }
    }

    /// The same factor for all three; a negative one exchanges the bounds.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let a = self.lower * factor;
        let b = self.upper * factor;
        Self { estimate: self.estimate * factor, lower: a.min(b), upper: a.max(b) }
    }

    /// A cost as a saving.
    #[must_use]
    pub fn negated(self) -> Self {
        self.scaled(-1.0)
    }

    /// The sum of figures whose errors are independent: distances to the bounds add in quadrature,
    /// each side by itself.
    pub fn sum(all: &[Self]) -> Self {
        let estimate: f64 = all.iter().map(|other_one| other_one.estimate).sum();
        let below = all
            .iter()
            .map(|other_one| (other_one.estimate - other_one.lower).powi(2))
            .sum::<f64>()
            .sqrt();
        let above = all
            .iter()
            .map(|other_one| (other_one.upper - other_one.estimate).powi(2))
            .sum::<f64>()
            .sqrt();
        Self { estimate, lower: estimate - below, upper: estimate + above }
    }

    /// The sum of figures whose bounds hold for certain, or whose errors may have one cause: bounds add.
    pub fn sum_of_bounds(all: &[Self]) -> Self {
        let sum = |value: fn(&Self) -> f64| all.iter().map(value).sum();
        Self {
            estimate: sum(|item| item.estimate),
            lower: sum(|item| item.lower),
            upper: sum(|item| item.upper),
        }
    }

    /// The product of two figures that are not negative and whose bounds hold for certain: bounds
    /// multiply.
    #[must_use]
    pub fn times_bounds(self, other: Self) -> Self {
        Self {
            estimate: self.estimate * other.estimate,
            lower: self.lower * other.lower,
            upper: self.upper * other.upper,
        }
    }

    /// The product of two figures that are not negative and whose errors are independent: relative
    /// distances add in quadrature, each side by itself. Where an estimate is zero the bounds are
    /// multiplied.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let estimate = self.estimate * other.estimate;
        if estimate <= 0.0 {
            return Self::new(0.0, self.lower * other.lower, self.upper * other.upper);
        }
        let relative = |other_one: Self, bound: f64| (bound / other_one.estimate - 1.0).powi(2);
        let below = (relative(self, self.lower) + relative(other, other.lower)).sqrt();
        let above = (relative(self, self.upper) + relative(other, other.upper)).sqrt();
        Self {
            estimate,
            lower: (estimate * (1.0 - below)).max(self.lower * other.lower),
            upper: (estimate * (1.0 + above)).min(self.upper * other.upper),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_errors_add_in_quadrature() {
        let a = Bounded { estimate: 10.0, lower: 7.0, upper: 14.0 };
        let b = Bounded { estimate: 20.0, lower: 16.0, upper: 23.0 };
        assert_eq!(Bounded::sum(&[a, b]), Bounded { estimate: 30.0, lower: 25.0, upper: 35.0 });
        assert_eq!(Bounded::sum(&[]), Bounded::ZERO);
    }

    #[test]
    fn a_product_is_no_wider_than_the_products_of_the_bounds() {
        let a = Bounded { estimate: 10.0, lower: 7.0, upper: 13.0 };
        let b = Bounded { estimate: 2.0, lower: 1.2, upper: 2.8 };
        // 30 % and 40 % are 50 % together.
        let product = a.times(b);
        assert!((product.lower - 10.0).abs() < 1e-9 && (product.upper - 30.0).abs() < 1e-9);
        let none = Bounded { estimate: 0.0, lower: 0.0, upper: 5.0 };
        assert_eq!(none.times(b), Bounded { estimate: 0.0, lower: 0.0, upper: 14.0 });
        assert!((a.times(Bounded::exact(1.0)).lower - a.lower).abs() < 1e-9);
    }

    #[test]
    fn a_saving_is_a_negative_cost() {
        let cost = Bounded { estimate: 2.0, lower: 1.0, upper: 4.0 };
        assert_eq!(cost.negated(), Bounded { estimate: -2.0, lower: -4.0, upper: -1.0 });
    }
}
