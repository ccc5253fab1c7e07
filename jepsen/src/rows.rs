//! The macro `rows!`, which declares an enum together with a table of its properties.

/// Declares an enum whose variants are the rows of a table. The arguments behind a variant are
/// those of the function `row` of the calling module, which makes a `Row` with the field `name`.
macro_rules! rows {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident($($column:expr),* $(,)?),)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All variants, in the order of the table.
            pub fn all() -> impl Iterator<Item = $name> {
                [$($name::$variant),*].into_iter()
            }

            fn row(self) -> &'static Row {
                const ROWS: &[Row] = &[$(row($($column),*)),*];
                &ROWS[self as usize]
            }

            /// Name on the command line.
            pub fn name(self) -> &'static str {
                self.row().name
            }
        }
    };
}
pub(crate) use rows;
