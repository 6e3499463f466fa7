//! Reserved words. A reserved word is no bare name, also after a dot; backticks quote it.

macro_rules! keywords {
    ($($word:ident)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Keyword { $($word),* }

        /// In alphabetical order, as in the enumeration.
        const WORDS: &[(&str, Keyword)] = &[$((stringify!($word), Keyword::$word)),*];
    };
}

keywords! {
    ADVISE ALL ALTER ANALYZE AND ANY ARRAY AS ASC AT BEGIN BETWEEN BINARY BOOLEAN BREAK BUCKET BUILD
    BY CACHE CALL CASE CAST CLUSTER COLLATE COLLECTION COMMIT COMMITTED CONNECT CONTINUE CORRELATED
    COVER CREATE CURRENT CYCLE DATABASE DATASET DATASTORE DECLARE DECREMENT DELETE DERIVED DESC
    DESCRIBE DISTINCT DO DROP EACH ELEMENT ELSE END ESCAPE EVERY EXCEPT EXCLUDE EXECUTE EXISTS
    EXPLAIN FALSE FETCH FILTER FIRST FLATTEN FLUSH FOLLOWING FOR FORCE FROM FTS FUNCTION GOLANG GRANT
    GROUP GROUPS GSI HASH HAVING IF IGNORE ILIKE IN INCLUDE INCREMENT INDEX INFER INLINE INNER INSERT
    INTERSECT INTO IS ISOLATION JAVASCRIPT JOIN KEY KEYS KEYSPACE KNOWN LANGUAGE LAST LATERAL LEFT
    LET LETTING LEVEL LIKE LIMIT LSM MAP MAPPING MATCHED MATERIALIZED MAXVALUE MERGE MINUS MINVALUE
    MISSING NAMESPACE NEST NEXT NEXTVAL NL NO NOT NTH_VALUE NULL NULLS NUMBER OBJECT OFFSET ON OPTION
    OPTIONS OR ORDER OTHERS OUTER OVER PARSE PARTITION PASSWORD PATH POOL PRECEDING PREPARE PREV
    PREVVAL PRIMARY PRIVATE PRIVILEGE PROBE PROCEDURE PUBLIC RANGE RAW READ REALM RECURSIVE REDUCE
    RENAME REPLACE RESPECT RESTART RESTRICT RETURN RETURNING REVOKE RIGHT ROLE ROLLBACK ROW
    ROWS SATISFIES SAVEPOINT SCHEMA SCOPE SELECT SELF SEQUENCE SET SHOW SOME START STATISTICS STRING
    SYSTEM THEN TIES TO TRAN TRANSACTION TRIGGER TRUE TRUNCATE UNBOUNDED UNDER UNION UNIQUE UNKNOWN
    UNNEST UNSET UPDATE UPSERT USE USERS USING VALIDATE VALUE VALUED VALUES VECTOR VIA VIEW WHEN
    WHERE WHILE WINDOW WITH WITHIN WORK XOR
}

/// Bytes of the longest word, at most.
const WORD_BYTES_MAX: usize = 16;

const _: () = {
    let mut at = 0;
    while at < WORDS.len() {
        assert!(WORDS[at].0.len() <= WORD_BYTES_MAX, "a word fits the buffer");
        at += 1;
    }
};

impl Keyword {
    /// The texts of all of them.
    pub fn all() -> impl Iterator<Item = &'static str> {
        WORDS.iter().map(|(text, _)| *text)
    }

    /// The word's text in capitals.
    pub fn text(self) -> &'static str {
        let (text, word) = WORDS[self as usize];
        debug_assert!(word == self, "words are in the order of the enumeration");
        text
    }
}

/// The reserved word that `word` is, whatever its case.
pub fn keyword(word: &[u8]) -> Option<Keyword> {
    let mut upper = [0u8; WORD_BYTES_MAX];
    let upper = upper.get_mut(..word.len())?;
    upper.copy_from_slice(word);
    upper.make_ascii_uppercase();
    let found = WORDS.binary_search_by(|(text, _)| text.as_bytes().cmp(upper)).ok()?;
    Some(WORDS[found].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_in_alphabetical_order() {
        assert!(WORDS.is_sorted_by(|(left, _), (right, _)| left < right));
    }

    #[test]
    fn case_of_a_keyword_is_ignored() {
        assert_eq!(keyword(b"sElEcT"), Some(Keyword::SELECT));
        assert_eq!(keyword(b"user"), None);
        assert_eq!(keyword(b"a_word_longer_than_any_reserved_one"), None);
    }
}
