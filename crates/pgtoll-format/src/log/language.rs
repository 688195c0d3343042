//! Logs in other languages than English, which are recognised to be refused.

/// The word by which a message shows that `lc_messages` is not English.
pub(crate) fn foreign_message(message: &[u8]) -> Option<&'static str> {
    // What nearly all messages of a workload begin with.
    if ENGLISH.iter().any(|label| message.starts_with(label)) {
        return None;
    }
    LABELS.into_iter().find(|label| message.starts_with(label.as_bytes()))
}

/// Whether a label of a severity is one of another language.
pub(crate) fn is_foreign_severity(label: &[u8]) -> bool {
    SEVERITIES.iter().any(|word| word.as_bytes() == label)
}

const ENGLISH: [&[u8]; 3] = [b"duration: ", b"statement: ", b"execute "];

/// `duration: ` and `statement: ` in PostgreSQL's translations (`src/backend/po`).
const LABELS: [&str; 22] = [
    "Dauer: ",
    "Anweisung: ",
    "durée : ",
    "instruction : ",
    "duración: ",
    "sentencia: ",
    "durata: ",
    "istruzione: ",
    "duração: ",
    "comando: ",
    "продолжительность: ",
    "оператор: ",
    "期間: ",
    "文: ",
    "执行时间: ",
    "语句: ",
    "varaktighet: ",
    "sats: ",
    "수행시간: ",
    "명령 구문: ",
    "süre: ",
    "тривалість: ",
];

/// `LOG`, `ERROR`, `FATAL`, `DETAIL` and so on in translations that differ.
const SEVERITIES: [&str; 21] = [
    "FEHLER",
    "WARNUNG",
    "HINWEIS",
    "ANWEISUNG",
    "ERREUR",
    "JOURNAL",
    "ATTENTION",
    "FATAL ERROR",
    "REGISTRO",
    "LOGGET",
    "ERRO",
    "ERRORE",
    "СООБЩЕНИЕ",
    "ОШИБКА",
    "ВАЖНО",
    "ログ",
    "エラー",
    "日志",
    "错误",
    "로그",
    "FEL",
];
