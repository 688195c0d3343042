use proptest::prelude::*;

use super::*;
use crate::expression;

fn statements(text: &str) -> Vec<String> {
    Script::parse("test", text).unwrap().sql().map(str::to_owned).collect()
}

#[test]
fn statements_end_at_semicolons_and_meta_commands() {
    let check = |text: &str, expected: &[&str]| assert_eq!(statements(text), expected, "{text}");
    check("SELECT 1; SELECT 2", &["SELECT 1", "SELECT 2"]);
    check("-- one\n\nSELECT 1 -- two; \\if\n , 2;;\n", &["SELECT 1 \n , 2"]);
    check("SELECT\n1 \\gset\nSELECT 2 \\aset x_\n", &["SELECT\n1", "SELECT 2"]);
    check(
        "SELECT ';', \";\", $$;$$, $a$;$$;$a$, E'\\';', 'it''s;' /* ; /* ; */ ; */;SELECT 2",
        &["SELECT ';', \";\", $$;$$, $a$;$$;$a$, E'\\';', 'it''s;' /* ; /* ; */ ; */", "SELECT 2"],
    );
    check(
        "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2); SELECT a$b$c",
        &["CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)", "SELECT a$b$c"],
    );
    check("\\set a 1 + \\\n  2\r\nSELECT 'ä\\';", &["SELECT 'ä\\'"]);
}

#[test]
fn variables_become_parameters() {
    let check = |text: &str, expected: &str| assert_eq!(statements(text), [expected], "{text}");
    check("SELECT :a, :b+:a", "SELECT $1, $2+$3");
    check(":a", "$1");
    check(
        "SELECT ':a', \":a\", $$:a$$ /* :a */, 1::int, a[1:2], :ä", //
        "SELECT ':a', \":a\", $$:a$$ /* :a */, 1::int, a[1:2], $1",
    );
    check("SELECT :a::int, x:::y, \\:z", "SELECT $1::int, x:::y, :z");
}

#[test]
fn mistakes_are_placed() {
    let check = |text: &str, expected: &str| {
        let error = Script::parse("x.sql", text).unwrap_err().to_string();
        assert_eq!(error, format!("x.sql, {expected}"), "{text}");
    };
    check("", "line 1, column 1: unknown command");
    check("-- nothing\n;\n", "line 1, column 1: unknown command");
    check("SELECT 1;\n  \\foo 1", "line 2, column 3: unknown command \\foo");
    check("\\ set a 1", "line 1, column 1: a command must follow the backslash");
    check(
        "\\shell ls",
        "line 1, column 1: \\shell is not supported: \
        what a program costs would be taken for the server's cost",
    );
    check(
        "\\startpipeline",
        "line 1, column 1: \\startpipeline is not supported: \
        statements are sent one by one",
    );
    check(
        "SELECT 1 \\; SELECT 2",
        "line 1, column 10: \\; is not supported: \
        every statement is prepared, and that takes one alone",
    );
    check("SELECT $1", "line 1, column 8: parameters are variables, and written :name");
    check("SELECT 'ä\n", "line 1, column 8: the quotation does not end");
    check("SELECT $x$ $y$", "line 1, column 8: the quotation does not end");
    check("/* /* */", "line 1, column 1: the comment does not end");
    check("\\set", "line 1, column 5: a variable is missing");
    check("\\set 1a 1", "line 1, column 6: \"1a\" is not a valid variable name");
    check("\\set a", "line 1, column 7: unexpected end of the expression");
    check("\\set a 1 +", "line 1, column 11: unexpected end of the expression");
    check("\\set a \\\n  1 + )", "line 2, column 7: unexpected \")\"");
    check("\\set a 1 ? 2", "line 1, column 10: unexpected character '?'");
    check("\\set a 1 2", "line 1, column 10: unexpected number 2");
    check("\\set a foo(1)", "line 1, column 8: unknown function \"foo\"");
    check("\\set a foo", "line 1, column 8: unexpected word \"foo\"");
    check("\\set a 1 + power(1)", "line 1, column 12: power takes 2 arguments, not 1");
    check("\\set a least()", "line 1, column 8: least takes 1 to 16 arguments, not 0");
    check("\\set a pi(1)", "line 1, column 8: pi takes no arguments, not 1");
    check("\\set a hash(1, 2, 3)", "line 1, column 8: hash takes 1 or 2 arguments, not 3");
    check("\\set a 1 < 2 < 3", "line 1, column 14: unexpected \"<\"");
    check("\\set a 9223372036854775808", "line 1, column 8: integer is out of range");
    check("\\set a 1e400", "line 1, column 8: double is out of range");
    check("\\set a : b", "line 1, column 8: a variable's name must follow the colon");
    check("\\set a CASE 1 END", "line 1, column 13: unexpected number 1");
    check("\\set a 1 IS 2", "line 1, column 13: unexpected number 2");
    check("\\if 1\nSELECT 1;", "line 1, column 1: \\if without \\endif");
    check("\\if 1\n\\else\n\\elif 2\n\\endif", "line 3, column 1: \\elif after \\else");
    check("\\if 1\n\\else\n\\else\n\\endif", "line 3, column 1: \\else after \\else");
    check("\\else", "line 1, column 1: \\else without \\if");
    check("\\elif 1", "line 1, column 1: \\elif without \\if");
    check("\\endif", "line 1, column 1: \\endif without \\if");
    check("\\if 1\n\\endif 1", "line 2, column 8: unexpected \"1\"");
    check("\\gset", "line 1, column 1: no SQL statement precedes this");
    check("SELECT 1 \\gset\n\\gset", "line 2, column 1: no SQL statement precedes this");
    check("SELECT 1 \\gset a-", "line 1, column 16: no variable's name can begin with \"a-\"");
    check("SELECT 1 \\gset a b", "line 1, column 18: unexpected \"b\"");
    check("\\sleep", "line 1, column 7: a time is missing");
    check("\\sleep x", "line 1, column 8: \"x\" is not a time: it must be an integer");
    check("\\sleep 1 h", "line 1, column 10: unit \"h\" is not us, ms or s");
    check("\\sleep 10h", "line 1, column 10: unit \"h\" is not us, ms or s");
    check("\\sleep 10 ms x", "line 1, column 14: unexpected \"x\"");
    let deep = format!("\\set a {}1", "(".repeat(5000));
    check(&deep, "line 1, column 108: expression is nested too deeply");
    let long = format!("\\set a 1{}", "+1".repeat(5000));
    assert!(Script::parse("x", &long).unwrap_err().message.contains("too long"));
}

#[test]
fn sleeps_have_units() {
    let check = |text: &str, amount: Amount, unit_us: u64| {
        let script = Script::parse("test", text).unwrap();
        assert_eq!(script.commands()[0].action, Action::Sleep { amount, unit_us });
    };
    check("\\sleep 2", Amount::Constant(2), 1_000_000);
    check("\\sleep 2 US", Amount::Constant(2), 1);
    check("\\sleep 2ms", Amount::Constant(2), 1000);
    check("\\SLEEP :x ms", Amount::Variable("x".into()), 1000);
}

#[test]
fn what_may_write_is_told_from_what_reads() {
    let check = |text: &str, expected: bool| {
        assert_eq!(Script::parse("test", text).unwrap().writes(), expected, "{text}");
    };
    check("SELECT 'insert', \"update\" /* delete */ FROM t;", false);
    check("(VALUES (1)); TABLE t; BEGIN; END; SHOW all; SET a = 1;", false);
    check("WITH a AS (SELECT 1) SELECT * FROM a", false);
    check("DECLARE c CURSOR FOR SELECT 1; FETCH ALL c; CLOSE c", false);
    check("\\set a 1", false);
    check("WITH a AS (DELETE FROM t RETURNING 1) SELECT * FROM a", true);
    check("SELECT 1 FROM t FOR KEY SHARE", true);
    check("SELECT 1 FROM t for update", true);
    check("SELECT 1 INTO t", true);
    check("COMMIT PREPARED 'x'", true);
    check("SELECT 1; TRUNCATE t", true);
    check("CALL p()", true);
    check("/* */", true);
}

#[test]
fn built_in_scripts_are_scripts() {
    for (name, text) in BUILT_IN {
        let script = Script::built_in(name).unwrap();
        assert_eq!((script.name(), script.text()), (name, text));
        assert!(script.is_built_in());
        assert_eq!(script.writes(), name != "select-only");
        assert!(!Script::parse(name, text).unwrap().is_built_in());
    }
    assert!(Script::built_in("tpcb").is_none());
}

fn parsed(text: &str) -> Expression<String> {
    expression::parse(text, 0..text.len()).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

#[test]
fn operators_bind_as_in_pgbench() {
    let check = |text: &str, expected: &str| assert_eq!(parsed(text).to_string(), expected);
    check("1 + 2 * 3 - 4", "((1 + (2 * 3)) - 4)");
    check("1 | 2 + 3 << 4", "((1 | (2 + 3)) << 4)");
    check("- 1 * 2", "((0 - 1) * 2)");
    check("~ 1 + 2", "(~(1 + 2))");
    check("~ 1 | 2", "((~1) | 2)");
    check("NOT 1 = 2 AND 3 > 4 OR 5 >= 6", "(((NOT (1 = 2)) AND (4 < 3)) OR (6 <= 5))");
    check("NOT :a IS NOT NULL", "(NOT (NOT (:a IS NULL)))");
    check("1 < 2 ISNULL NOTNULL", "(NOT (((1 < 2) IS NULL) IS NULL))");
    check("1 = 2 IS NULL = TRUE", "(((1 = 2) IS NULL) = TRUE)");
    check("1 + NOT 2 + 3", "(1 + (NOT (2 + 3)))");
    check("-9223372036854775808", "-9223372036854775808");
    check("hash(1) + permute(1, 2)", "(hash(1, :default_seed) + permute(1, 2, :default_seed))");
    check("case when 1 then 2 end", "CASE WHEN 1 THEN 2 ELSE NULL END");
    check("1.5 + .5 + 1. + 2e3", "(((1.5e0 + 5e-1) + 1e0) + 2e3)");
    check("pi() + POW(1, 2)", "(pi() + pow(1, 2))");
}

/// Texts that are near to scripts.
fn script_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "\\set a ", "\\if ", "\\elif ", "\\else", "\\endif", "\\gset", "\\aset p", "\\sleep ",
        "SELECT ", "UPDATE ", ":a", ":", "::", "'", "\"", "$$", "$a$", "/*", "*/", "--", ";", "\n",
        "\\\n", "(", ")", ",", "1", "2.5", "1e9", "+", "-", "*", "/", "%", "<", "<>", ">=", "=",
        "~", "NOT ", "IS ", "NULL ", "TRUE ", "AND ", "CASE ", "WHEN ", "THEN ", "END ", "random(",
        "hash(", "ä", "E'", "\\", " ",
    ]);
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "0",
        "9223372036854775807",
        "-9223372036854775808",
        "1.5",
        "1e-7",
        "1e300",
        ".25",
        "NULL",
        "TRUE",
        "FALSE",
        ":a",
        ":b_1",
        "pi()",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 60, 3, |inner| {
        let operator = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "<<", ">>", "|", "#", "&", "AND", "OR", "=", "<>", "<", "<=",
            ">", ">=",
        ]);
        let before = prop::sample::select(vec!["-", "+", "~", "NOT "]);
        let behind = prop::sample::select(vec![" IS NULL", " IS NOT TRUE", " ISNULL", " NOTNULL"]);
        let function = prop::sample::select(vec!["least", "GREATEST", "hash", "power", "random"]);
        prop_oneof![
            (inner.clone(), operator, inner.clone())
                .prop_map(|(left, operator, right)| format!("{left} {operator} {right}")),
            (before, inner.clone()).prop_map(|(before, inner)| format!("{before}{inner}")),
            (inner.clone(), behind).prop_map(|(item, behind)| format!("{item}{behind}")),
            inner.clone().prop_map(|inner| format!("({inner})")),
            (function, inner.clone(), inner.clone())
                .prop_map(|(name, one, two)| format!("{name}({one}, {two})")),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| format!("CASE WHEN {a} THEN {b} ELSE {c} END")),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_an_error(text in any::<String>()) {
        let _ = Script::parse("any", &text);
    }

    #[test]
    fn any_pieces_are_a_script_or_an_error(text in script_text()) {
        let _ = Script::parse("any", &text);
    }

    #[test]
    fn printed_expressions_are_read_as_the_same(text in expression()) {
        // Comparisons in a row are none.
        if let Ok(first) = expression::parse(&text, 0..text.len()) {
            prop_assert_eq!(parsed(&first.to_string()), first);
        }
    }
}
