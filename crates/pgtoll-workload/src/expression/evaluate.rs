//! Expressions to their values.

use rand_pcg::Pcg64;

use super::{EvaluationError, Expression, Function, Scalar, Slot, Variables};
use crate::random;

/// The context of an expression's value.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) variables: &'a Variables,
    pub(crate) random: &'a mut Pcg64,
    /// The output of `debug`.
    pub(crate) notes: &'a mut Vec<String>,
}

/// Boxed, because every step of the hot path returns one of these.
type Evaluated<T = Scalar> = Result<T, Box<EvaluationError>>;

impl Expression<Slot> {
    #[inline]
    pub(crate) fn evaluate(&self, context: &mut Context<'_>) -> Evaluated {
        match self {
            Self::Constant(scalar) => Ok(*scalar),
            Self::Variable(slot) => context.variables.scalar(*slot),
            Self::Call(function, arguments) => call(*function, arguments, context),
        }
    }
}

impl<V> Expression<V> {
    /// A call, or its value where that is certain.
    pub(super) fn folded(function: Function, arguments: Box<[Self]>) -> Self {
        if let [Self::Constant(Scalar::Integer(left)), Self::Constant(Scalar::Integer(right))] =
            *arguments
            && function.is_arithmetic()
            && let Ok(value) = integers(function, left, right)
        {
            return Self::Constant(value);
        }
        Self::Call(function, arguments)
    }
}

fn call(
    function: Function,
    arguments: &[Expression<Slot>],
    context: &mut Context<'_>,
) -> Evaluated {
    match (function, arguments) {
        (Function::And, _) => logical(arguments, true, context),
        (Function::Or, _) => logical(arguments, false, context),
        (Function::Case, _) => case(arguments, context),
        (Function::Least | Function::Greatest, _) => extremum(function, arguments, context),
        (_, []) => Ok(Scalar::Double(std::f64::consts::PI)),
        (_, [value]) => {
            let value = value.evaluate(context)?;
            unary(function, value, context)
        }
        (_, [left, right]) => {
            let left = left.evaluate(context)?;
            let right = right.evaluate(context)?;
            binary(function, left, right, context)
        }
        (_, [first, second, third, ..]) => {
            let first = first.evaluate(context)?;
            let second = second.evaluate(context)?;
            let third = third.evaluate(context)?;
            if [first, second, third].contains(&Scalar::Null) {
                return Ok(Scalar::Null);
            }
            ternary(function, first, second, third, context)
        }
    }
}

/// `AND` continues while operands are true, `OR` while they are false. As in pgbench, and unlike in
/// SQL, the first null is the result.
fn logical(operands: &[Expression<Slot>], goes_on: bool, context: &mut Context<'_>) -> Evaluated {
    let mut last = Scalar::Null;
    for operand in operands {
        last = operand.evaluate(context)?;
        if last == Scalar::Null || boolean(last)? != goes_on {
            break;
        }
    }
    Ok(last)
}

fn case(arguments: &[Expression<Slot>], context: &mut Context<'_>) -> Evaluated {
    for branch in arguments.chunks(2) {
        match branch {
            [condition, _] if !condition.evaluate(context)?.is_true() => {}
            [_, value] | [value] => return value.evaluate(context),
            _ => {}
        }
    }
    Ok(Scalar::Null)
}

fn unary(function: Function, value: Scalar, context: &mut Context<'_>) -> Evaluated {
    let double_of = |number: fn(f64) -> f64| Ok(Scalar::Double(number(double(value)?)));
    match (function, value) {
        (Function::Debug, _) => {
            note(value, context.notes);
            Ok(value)
        }
        (_, Scalar::Null) => Ok(Scalar::Null),
        (Function::Not, _) => Ok(Scalar::Boolean(!boolean(value)?)),
        (Function::Abs, Scalar::Integer(number)) => {
            let absolute = number.checked_abs();
            absolute
                .map(Scalar::Integer)
                .ok_or_else(|| EvaluationError::IntegerOutOfRange("abs").into())
        }
        (Function::Abs, _) => double_of(f64::abs),
        (Function::Double, _) => double_of(|number| number),
        (Function::Exp, _) => double_of(f64::exp),
        (Function::Ln, _) => double_of(f64::ln),
        (Function::Sqrt, _) => double_of(f64::sqrt),
        _ => integer(value).map(Scalar::Integer),
    }
}

/// Writes down what pgbench's `debug` prints.
fn note(value: Scalar, notes: &mut Vec<String>) {
    if notes.len() < NOTES_MAX {
        notes.push(match value {
            Scalar::Null => value.to_string(),
            _ => format!("{} {value}", value.type_name()),
        });
    }
}

/// A load runs `debug` as often as it can: what is beyond the first ones is dropped.
const NOTES_MAX: usize = 10_000;

fn binary(function: Function, left: Scalar, right: Scalar, context: &mut Context<'_>) -> Evaluated {
    match function {
        Function::Is => Ok(Scalar::Boolean(left == right)),
        _ if left == Scalar::Null || right == Scalar::Null => Ok(Scalar::Null),
        Function::Power => Ok(Scalar::Double(double(left)?.powf(double(right)?))),
        Function::Random => {
            let (from, to) = range(left, right)?;
            Ok(Scalar::Integer(random::uniform(context.random, from, to)))
        }
        Function::HashFnv1a | Function::HashMurmur2 => {
            let value = integer(left)?;
            let seed = integer(right)?;
            Ok(Scalar::Integer(match function {
                Function::HashFnv1a => random::hash_fnv1a(value, seed),
                _ => random::hash_murmur2(value, seed),
            }))
        }
        Function::BitOr
        | Function::BitXor
        | Function::BitAnd
        | Function::ShiftLeft
        | Function::ShiftRight
        | Function::Modulo => integers(function, integer(left)?, integer(right)?),
        _ if matches!(left, Scalar::Double(_)) || matches!(right, Scalar::Double(_)) => {
            Ok(doubles(function, double(left)?, double(right)?))
        }
        _ => integers(function, integer(left)?, integer(right)?),
    }
}

#[expect(clippy::float_cmp, reason = "equality is what the script asks for")]
fn doubles(function: Function, left: f64, right: f64) -> Scalar {
    match function {
        Function::Equal => Scalar::Boolean(left == right),
        Function::NotEqual => Scalar::Boolean(left != right),
        Function::Less => Scalar::Boolean(left < right),
        Function::LessOrEqual => Scalar::Boolean(left <= right),
        Function::Add => Scalar::Double(left + right),
        Function::Subtract => Scalar::Double(left - right),
        Function::Multiply => Scalar::Double(left * right),
        _ => Scalar::Double(left / right),
    }
}

fn integers(function: Function, left: i64, right: i64) -> Evaluated {
    let checked = |result: Option<i64>, name| {
        result.map(Scalar::Integer).ok_or_else(|| EvaluationError::IntegerOutOfRange(name).into())
    };
    // A shift by more bits than there are takes the count's lowest six, as the processors do that
    // pgbench leaves it to.
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "see above")]
    let bits = right as u32;
    match function {
        Function::Equal => Ok(Scalar::Boolean(left == right)),
        Function::NotEqual => Ok(Scalar::Boolean(left != right)),
        Function::Less => Ok(Scalar::Boolean(left < right)),
        Function::LessOrEqual => Ok(Scalar::Boolean(left <= right)),
        Function::BitOr => Ok(Scalar::Integer(left | right)),
        Function::BitXor => Ok(Scalar::Integer(left ^ right)),
        Function::BitAnd => Ok(Scalar::Integer(left & right)),
        Function::ShiftLeft => Ok(Scalar::Integer(left.wrapping_shl(bits))),
        Function::ShiftRight => Ok(Scalar::Integer(left.wrapping_shr(bits))),
        Function::Add => checked(left.checked_add(right), "add"),
        Function::Subtract => checked(left.checked_sub(right), "sub"),
        Function::Multiply => checked(left.checked_mul(right), "mul"),
        _ if right == 0 => Err(EvaluationError::DivisionByZero.into()),
        Function::Modulo => Ok(Scalar::Integer(left.wrapping_rem(right))),
        _ => checked(left.checked_div(right), "div"),
    }
}

fn ternary(
    function: Function,
    first: Scalar,
    second: Scalar,
    third: Scalar,
    context: &mut Context<'_>,
) -> Evaluated {
    if function == Function::Permute {
        let value = integer(first)?;
        let size = integer(second)?;
        let seed = integer(third)?;
        if size <= 0 {
            return refused("permute size parameter must be greater than zero");
        }
        return Ok(Scalar::Integer(random::permute(value, size, seed)));
    }
    let (from, to) = range(first, second)?;
    let parameter = double(third)?;
    Ok(Scalar::Integer(match function {
        Function::RandomExponential => {
            if parameter.is_nan() || parameter <= 0.0 {
                return refused(format!(
                    "exponential parameter must be greater than zero (not {parameter})"
                ));
            }
            random::exponential(context.random, from, to, parameter)
        }
        Function::RandomGaussian => {
            if parameter.is_nan() || parameter < random::GAUSSIAN_MIN {
                return refused(format!(
                    "gaussian parameter must be at least {} (not {parameter})",
                    random::GAUSSIAN_MIN
                ));
            }
            random::gaussian(context.random, from, to, parameter)
        }
        _ => {
            let least = random::ZIPFIAN_MIN;
            let most = random::ZIPFIAN_MAX;
            if !(least..=most).contains(&parameter) {
                return refused(format!(
                    "zipfian parameter must be in range [{least}, {most}] (not {parameter})"
                ));
            }
            random::zipfian(context.random, from, to, parameter)
        }
    }))
}

/// The bounds of a random number.
fn range(from: Scalar, to: Scalar) -> Evaluated<(i64, i64)> {
    let from = integer(from)?;
    let to = integer(to)?;
    if from > to {
        return refused("empty range given to random");
    }
    match to.checked_sub(from).and_then(|width| width.checked_add(1)) {
        Some(_) => Ok((from, to)),
        None => refused("random range is too large"),
    }
}

fn refused<T>(message: impl Into<String>) -> Evaluated<T> {
    Err(EvaluationError::Parameter(message.into()).into())
}

fn extremum(
    function: Function,
    arguments: &[Expression<Slot>],
    context: &mut Context<'_>,
) -> Evaluated {
    let values: Vec<Scalar> =
        arguments.iter().map(|argument| argument.evaluate(context)).collect::<Evaluated<_>>()?;
    if values.contains(&Scalar::Null) {
        return Ok(Scalar::Null);
    }
    let least = function == Function::Least;
    if values.iter().any(|value| matches!(value, Scalar::Double(_))) {
        let start = if least { f64::INFINITY } else { f64::NEG_INFINITY };
        let item = if least { f64::min } else { f64::max };
        let found =
            values.iter().try_fold(start, |so_far, value| Ok(item(so_far, double(*value)?)));
        return found.map(Scalar::Double);
    }
    let start = if least { i64::MAX } else { i64::MIN };
    let item = if least { i64::min } else { i64::max };
    let found = values.iter().try_fold(start, |so_far, value| Ok(item(so_far, integer(*value)?)));
    found.map(Scalar::Integer)
}

fn boolean(value: Scalar) -> Evaluated<bool> {
    match value {
        Scalar::Boolean(value) => Ok(value),
        _ => coercion(value, "boolean"),
    }
}

pub(crate) fn integer(value: Scalar) -> Evaluated<i64> {
    match value {
        Scalar::Integer(number) => Ok(number),
        Scalar::Double(number) => {
            let rounded = number.round_ties_even();
            if !(-TWO_TO_63..TWO_TO_63).contains(&rounded) {
                return Err(EvaluationError::DoubleToInteger(number.to_string()).into());
            }
            #[expect(clippy::cast_possible_truncation, reason = "it is in range")]
            Ok(rounded as i64)
        }
        _ => coercion(value, "int"),
    }
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

fn double(value: Scalar) -> Evaluated<f64> {
    match value {
        Scalar::Double(number) => Ok(number),
        #[expect(clippy::cast_precision_loss, reason = "that is what a double is")]
        Scalar::Integer(number) => Ok(number as f64),
        _ => coercion(value, "double"),
    }
}

fn coercion<T>(value: Scalar, to: &'static str) -> Evaluated<T> {
    Err(EvaluationError::Coercion { from: value.type_name(), to }.into())
}
