// The editor of a statement: a text area over its own colours, and a list that completes the word.
//
// The list opens while a word is typed, or by Ctrl Space. Tab takes the first or the chosen line, Enter
// only one that was chosen by an arrow, so that Enter still ends a line; Escape closes it.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";
import { complete, pieces, type Completion } from "./language";

interface EditorProps {
  field: RefObject<HTMLTextAreaElement | null>;
  value: string;
  change: (value: string) => void;
  run: () => void;
  names: (statement: string) => { keyspaces: string[]; fields: string[] };
}

interface OpenList extends Completion {
  chosen: number;
  caret: number;
}

export function StatementEditor({ field, value, change, run, names }: EditorProps) {
  const colours = useRef<HTMLPreElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const [open, setOpen] = useState<OpenList>();
  const follow = () => {
    if (!field.current || !colours.current) return;
    colours.current.scrollTop = field.current.scrollTop;
    colours.current.scrollLeft = field.current.scrollLeft;
  };
  useLayoutEffect(follow, [value]);
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [open]);
  const offer = (asked: boolean) => {
    awaits.current = asked ? "asked" : "word";
    const { value, selectionStart: caret, selectionEnd } = field.current!;
    const found = caret === selectionEnd ? complete(value, caret, names(value), asked) : undefined;
    setOpen(found && { ...found, chosen: -1, caret });
  };
  // Names that arrive after the last key belong to the list, also when it had none before.
  const known = names(value);
  const awaits = useRef<"word" | "asked" | undefined>(undefined);
  useEffect(() => {
    if (awaits.current) offer(awaits.current === "asked");
  }, [known.fields.length, known.keyspaces.length]);
  const shut = () => {
    awaits.current = undefined;
    setOpen(undefined);
  };
  const take = (at: number) => {
    const text = open?.candidates[at]?.text;
    const area = field.current;
    if (!open || text === undefined || !area) return;
    area.focus();
    area.setSelectionRange(open.start, open.caret);
    // It keeps the browser's undo; where it is gone, the text changes without.
    if (!document.execCommand("insertText", false, text)) {
      area.setRangeText(text, open.start, open.caret, "end");
      change(area.value);
    }
    shut();
  };
  const press = (event: KeyboardEvent) => {
    const isControl = event.ctrlKey || event.metaKey;
    const used = () => {
      if (event.key === "Enter" && isControl) shut(), run();
      else if (event.key === " " && event.ctrlKey) offer(true);
      else if (!open) return false;
      else if (event.key === "Escape") shut();
      else if (event.key === "Tab" && !event.shiftKey) take(Math.max(0, open.chosen));
      else if (event.key === "Enter" && open.chosen >= 0) take(open.chosen);
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const count = open.candidates.length;
        const step = event.key === "ArrowDown" ? 1 : -1;
        setOpen({ ...open, chosen: open.chosen < 0 && step < 0 ? count - 1 : (open.chosen + step + count) % count });
      } else {
        if (["ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"].includes(event.key)) shut();
        return false;
      }
      return true;
    };
    if (used()) event.preventDefault();
  };
  const place = open && listPlace(value, open.start, field.current!);
  return (
    <div class="statement">
      <pre class="colours" aria-hidden="true" ref={colours}>
        {pieces(value).map(([kind, text]) => (kind === "plain" ? text : <span class={`sql-${kind}`}>{text}</span>))}
        {"\n"}
      </pre>
      <textarea
        ref={field}
        id="statement"
        data-search
        rows={6}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        aria-autocomplete="list"
        aria-controls={open ? "completion" : undefined}
        aria-activedescendant={open && open.chosen >= 0 ? `completion-${open.chosen}` : undefined}
        value={value}
        // An example that came later would be in the middle of what is typed.
        onFocus={() => value === "" && change("")}
        onInput={(event) => {
          change(event.currentTarget.value);
          offer(false);
        }}
        onKeyDown={press}
        onScroll={follow}
        onBlur={() => shut()}
        onClick={() => shut()}
      />
      {open && (
        <ul class="completion" id="completion" role="listbox" aria-label="Completion" tabIndex={-1} ref={list} style={place}>
          {open.candidates.map(({ text, kind }, at) => (
            <li
              key={kind + text}
              id={`completion-${at}`}
              role="option"
              aria-selected={at === open.chosen}
              // The text keeps the focus.
              onMouseDown={(event) => (event.preventDefault(), take(at))}
            >
              {text} <span class="muted">{kind}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** Below the word, in the units of the editor's own font. */
function listPlace(value: string, start: number, area: HTMLTextAreaElement) {
  const before = value.slice(0, start).split("\n");
  const [line, column] = [before.length, [...before.at(-1)!].length];
  return {
    top: `calc(0.5rem + ${line} * 1.45em - ${Math.round(area.scrollTop)}px)`,
    left: `max(0px, min(0.7rem + ${column}ch - ${Math.round(area.scrollLeft)}px, 100% - 22rem))`,
  };
}
