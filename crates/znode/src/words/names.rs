//! Names of variants.

/// Defines an enum in which each variant has a name, with a list of all variants.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {$(
        $(#[$variant_meta:meta])* $variant:ident = $text:literal,
    )*}) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$variant),*];

            /// Returns the name in logs, metrics and answers.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }
    };
}
