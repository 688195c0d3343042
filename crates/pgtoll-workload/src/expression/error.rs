//! Why an expression has no value.

/// An expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// A variable that nothing has set.
    #[error("undefined variable :{0}")]
    Undefined(String),
    /// A query's value is neither number nor boolean.
    #[error("variable :{name} is not a number: {value:?}")]
    Malformed {
        /// The variable.
        name: String,
        /// Its text.
        value: String,
    },
    /// A value of the wrong type.
    #[error("cannot coerce {from} to {to}")]
    Coercion {
        /// The type it has.
        from: &'static str,
        /// The type it should have.
        to: &'static str,
    },
    /// A double that is no integer's.
    #[error("double to int overflow for {0}")]
    DoubleToInteger(String),
    /// An integer beyond 64 bits.
    #[error("bigint {0} out of range")]
    IntegerOutOfRange(&'static str),
    /// An integer divided by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A parameter outside what a function is defined for.
    #[error("{0}")]
    Parameter(String),
}
