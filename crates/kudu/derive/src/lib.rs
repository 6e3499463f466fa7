//! `#[derive(KuduRow)]`: a struct whose fields are the cells of a row of a Kudu table.
//!
//! Use it through `oribi_kudu::KuduRow`, which says what the derived code does. Each field is one
//! column, of the field's name or of `#[kudu(column = "name")]`. The derived code looks
//! nothing up itself: it names the columns once, and hands each field over by its number.
//!
//! The compiler refuses a field whose type no cell has, and a struct without named fields:
//!
//! ```compile_fail
//! # use oribi_kudu_derive::KuduRow;
//! #[derive(KuduRow)]
//! struct Pair(i64, String);
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Lifetime, LifetimeParam, LitStr, parse_quote};

/// Makes a struct a row: see `oribi_kudu::KuduRow`.
#[proc_macro_derive(KuduRow, attributes(kudu))]
pub fn derive_kudu_row(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    implementation(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn implementation(input: &DeriveInput) -> Result<TokenStream, Error> {
    let fields = named_fields(input)?;
    let columns = fields.iter().map(|field| column_of(field)).collect::<Result<Vec<_>, _>>()?;
    for (index, column) in columns.iter().enumerate() {
        if columns[..index].iter().any(|earlier| earlier.value() == column.value()) {
            let text = format!("two fields are column {:?}", column.value());
            return Err(Error::new(column.span(), text));
        }
    }
    let names: Vec<_> = fields.iter().map(|field| &field.ident).collect();
    let numbers: Vec<_> = (0..fields.len()).collect();

    // A struct that borrows is read from rows of that lifetime, any other from rows of any
    // lifetime.
    let mut generics = input.generics.clone();
    let row = match generics.lifetimes().map(|parameter| parameter.lifetime.clone()).next() {
        Some(lifetime) => lifetime,
        None => {
            let lifetime = Lifetime::new("'kudu_row", input.span());
            generics.params.insert(0, LifetimeParam::new(lifetime.clone()).into());
            lifetime
        }
    };
    for parameter in input.generics.type_params() {
        let name = &parameter.ident;
        let bound = parse_quote!(#name: ::oribi_kudu::FromCell<#row> + ::oribi_kudu::ToCell);
        generics.make_where_clause().predicates.push(bound);
    }
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (_, type_generics, _) = input.generics.split_for_impl();
    let name = &input.ident;

    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::oribi_kudu::KuduRow<#row> for #name #type_generics #where_clause {
            const COLUMNS: &'static [&'static str] = &[#(#columns),*];

            #[inline]
            fn write(
                &self,
                cells: &mut ::oribi_kudu::CellWriter<'_, '_>,
            ) -> ::core::result::Result<(), ::oribi_kudu::RowError> {
                #(cells.put(#numbers, &self.#names)?;)*
                ::core::result::Result::Ok(())
            }

            #[inline]
            fn read(
                cells: &::oribi_kudu::CellReader<#row, '_>,
            ) -> ::core::result::Result<Self, ::oribi_kudu::ScanError> {
                ::core::result::Result::Ok(Self { #(#names: cells.get(#numbers)?),* })
            }
        }
    })
}

fn named_fields(input: &DeriveInput) -> Result<Vec<&Field>, Error> {
    let refused = "a row is a struct with named fields";
    match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) if !fields.named.is_empty() => Ok(fields.named.iter().collect()),
            _ => Err(Error::new(input.ident.span(), refused)),
        },
        _ => Err(Error::new(input.ident.span(), refused)),
    }
}

/// The column of a field: `#[kudu(column = "name")]`, or the field's own name.
fn column_of(field: &Field) -> Result<LitStr, Error> {
    let ident = field.ident.as_ref().expect("only named fields get here");
    let mut column = LitStr::new(ident.to_string().trim_start_matches("r#"), ident.span());
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("kudu")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("column") {
                return Err(meta.error("the only setting is `column = \"name\"`"));
            }
            column = meta.value()?.parse()?;
            Ok(())
        })?;
    }
    Ok(column)
}
