//! pgbench's expressions: what `\set` computes and `\if` tests.

mod error;
mod evaluate;
mod functions;
mod parse;
mod scalar;
mod variables;

use std::fmt;

pub use error::EvaluationError;
pub(crate) use evaluate::{Context, integer};
pub(crate) use functions::Function;
pub(crate) use parse::parse;
pub(crate) use scalar::Scalar;
pub(crate) use variables::{Slot, Value, Variables};

/// An expression whose variables are of type `V`: names as it was parsed, slots as it is run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression<V> {
    Constant(Scalar),
    Variable(V),
    Call(Function, Box<[Self]>),
}

impl<V> Expression<V> {
    /// The same expression with other variables; what is constant is computed.
    pub(crate) fn map<W>(&self, variable: &mut impl FnMut(&V) -> W) -> Expression<W> {
        match self {
            Self::Constant(scalar) => Expression::Constant(*scalar),
            Self::Variable(name) => Expression::Variable(variable(name)),
            Self::Call(function, arguments) => {
                let arguments = arguments.iter().map(|argument| argument.map(variable)).collect();
                Expression::folded(*function, arguments)
            }
        }
    }
}

/// With parentheses around every operator, so that reading it needs no precedence.
impl<V: fmt::Display> fmt::Display for Expression<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(Scalar::Null) => formatter.write_str("NULL"),
            Self::Constant(Scalar::Boolean(true)) => formatter.write_str("TRUE"),
            Self::Constant(Scalar::Boolean(false)) => formatter.write_str("FALSE"),
            Self::Constant(Scalar::Integer(number)) => write!(formatter, "{number}"),
            Self::Constant(Scalar::Double(number)) => write!(formatter, "{number:e}"),
            Self::Variable(name) => write!(formatter, ":{name}"),
            Self::Call(function, arguments) => display_call(*function, arguments, formatter),
        }
    }
}

fn display_call<V: fmt::Display>(
    function: Function,
    arguments: &[Expression<V>],
    formatter: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match (function, arguments) {
        (Function::Not, [operand]) => write!(formatter, "(NOT {operand})"),
        // The only way to a constant of -1.
        (Function::BitXor, [Expression::Constant(Scalar::Integer(-1)), operand]) => {
            write!(formatter, "(~{operand})")
        }
        (Function::Case, [whens @ .., otherwise]) => {
            formatter.write_str("CASE")?;
            for pair in whens.chunks(2) {
                if let [condition, value] = pair {
                    write!(formatter, " WHEN {condition} THEN {value}")?;
                }
            }
            write!(formatter, " ELSE {otherwise} END")
        }
        (_, [left, right]) if !function.symbol().is_empty() => {
            write!(formatter, "({left} {} {right})", function.symbol())
        }
        _ => {
            write!(formatter, "{}(", function.name())?;
            for (index, argument) in arguments.iter().enumerate() {
                let separator = if index > 0 { ", " } else { "" };
                write!(formatter, "{separator}{argument}")?;
            }
            formatter.write_str(")")
        }
    }
}
