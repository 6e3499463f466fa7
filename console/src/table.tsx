// Tables. A wide one scrolls in its own frame; one that stacks shows each row as a block on a phone.
//
// Owns: the roles of a table that stacks, because browsers take them away with the layout of a table.

import type { ComponentChildren } from "preact";

/** The name of a column, and whether it has numbers. */
export type Column = string | [name: string, kind: "number"];

interface TableProps {
  caption: string;
  columns: Column[];
  stacks?: boolean;
  tall?: boolean;
  children: ComponentChildren;
}

/** A table with a caption for screen readers. */
export function Table({ caption, columns, stacks, tall, children }: TableProps) {
  const kinds = ["scroll", stacks && "stacks", tall && "tall"].filter(Boolean).join(" ");
  return (
    <div class={kinds} tabIndex={0} role="region" aria-label={caption}>
      <table role={stacks ? "table" : undefined}>
        <caption class="unseen">{caption}</caption>
        <thead role={stacks ? "rowgroup" : undefined}>
          <tr role={stacks ? "row" : undefined}>
            {columns.map((column, index) => {
              const [name, kind] = typeof column === "string" ? [column] : column;
              return (
                <th scope="col" class={kind} key={index} role={stacks ? "columnheader" : undefined}>
                  {name}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody role={stacks ? "rowgroup" : undefined}>{children}</tbody>
      </table>
    </div>
  );
}

/** A row of a table that stacks; `name` is its header. */
export const Row = ({ name, isKey, children }: { name: ComponentChildren; isKey?: boolean; children: ComponentChildren }) => (
  <tr role="row">
    <th scope="row" role="rowheader" class={isKey ? "key" : undefined}>
      {name}
    </th>
    {children}
  </tr>
);

/** A cell of a table that stacks; the label is the column's, for the block of a phone. */
export const Cell = (props: { label?: string; kind?: string; children?: ComponentChildren }) => (
  <td role="cell" data-label={props.label} class={props.kind}>
    {props.children}
  </td>
);

/** The buttons of a row. */
export const Actions = ({ children }: { children: ComponentChildren }) => (
  <td role="cell" class="actions">
    <div>{children}</div>
  </td>
);
