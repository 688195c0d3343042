//! Variables of a client's scripts, of expressions and statements.

use std::collections::HashMap;

use super::{EvaluationError, Scalar};

/// The place of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// A variable's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Unset,
    Scalar(Scalar),
    /// A text that a query returned.
    Text(String),
}

/// The variables of all scripts of a client, which share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    names: Vec<String>,
    values: Vec<Value>,
    /// Only for compiling: what runs knows its slots.
    slots: HashMap<String, Slot>,
}

impl Variables {
    /// The slot of the variable of this name, which is unset if it is new.
    pub(crate) fn slot(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        let slot = Slot(self.names.len());
        self.names.push(name.to_owned());
        self.values.push(Value::Unset);
        self.slots.insert(name.to_owned(), slot);
        slot
    }

    pub(crate) fn name(&self, slot: Slot) -> &str {
        &self.names[slot.0]
    }

    pub(crate) fn value(&self, slot: Slot) -> &Value {
        &self.values[slot.0]
    }

    /// The value as expressions see it.
    pub(crate) fn scalar(&self, slot: Slot) -> Result<Scalar, Box<EvaluationError>> {
        match self.value(slot) {
            Value::Scalar(scalar) => Ok(*scalar),
            Value::Text(text) => Scalar::from_text(text).ok_or_else(|| {
                let name = self.name(slot).to_owned();
                let value = text.clone();
                Box::new(EvaluationError::Malformed { name, value })
            }),
            Value::Unset => Err(self.undefined(slot).into()),
        }
    }

    pub(crate) fn undefined(&self, slot: Slot) -> EvaluationError {
        EvaluationError::Undefined(self.name(slot).to_owned())
    }

    pub(crate) fn set(&mut self, slot: Slot, value: Value) {
        self.values[slot.0] = value;
    }

    pub(crate) fn unset_all(&mut self) {
        self.values.fill(Value::Unset);
    }
}
