// Parts that every page uses: messages, dialogs, fields, and requests while a page is shown.

import type { ComponentChildren, JSX } from "preact";
import { useCallback, useEffect, useId, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";

/** The answer to a request, with the error of the last try and a function for another. */
export interface Asked<T> {
  value?: T;
  error?: ApiError;
  isBusy: boolean;
  again: () => void;
}

/** Asks when the page opens and when a dependency changes. An overtaken answer is dropped. */
export function useAsked<T>(request: (signal: AbortSignal) => Promise<T>, on: unknown[]): Asked<T> {
  const [state, setState] = useState<{ value?: T; error?: ApiError; isBusy: boolean }>({ isBusy: true });
  const [turn, setTurn] = useState(0);
  const again = useCallback(() => setTurn((turn) => turn + 1), []);
  useEffect(() => {
    const abort = new AbortController();
    setState((state) => ({ ...state, isBusy: true }));
    request(abort.signal).then(
      (value) => abort.signal.aborted || setState({ value, isBusy: false }),
      (error) =>
        abort.signal.aborted ||
        setState((state) => ({ value: state.value, error: asApiError(error), isBusy: false })),
    );
    return () => abort.abort();
  }, [...on, turn]);
  return { ...state, again };
}

export const asApiError = (error: unknown) =>
  error instanceof ApiError ? error : new ApiError(0, error instanceof Error ? error.message : String(error));

/** Runs a step now and then, as long after the end of the last as that says, while the page is visible. */
export function useTicks(step: () => Promise<number>) {
  const latest = useRef(step);
  latest.current = step;
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isRunning = false;
    let isOver = false;
    const tick = async () => {
      clearTimeout(timer);
      if (isRunning || isOver || document.hidden) return;
      isRunning = true;
      const pause = await latest.current();
      isRunning = false;
      if (!isOver) timer = setTimeout(tick, pause);
    };
    void tick();
    document.addEventListener("visibilitychange", tick);
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", tick);
    };
  }, []);
}

// Messages. One region for all of them, which screen readers follow.

type Kind = "done" | "failed";
let showMessage: (kind: Kind, text: string) => void = () => {};
export const done = (text: string) => showMessage("done", text);
export const failed = (error: unknown) => showMessage("failed", asApiError(error).message);

export let clearMessages = () => {};

const MESSAGE_MS = 6000;

export function Messages() {
  const [messages, setMessages] = useState<{ id: number; kind: Kind; text: string }[]>([]);
  const next = useRef(0);
  const drop = (id: number) => setMessages((all) => all.filter((one) => one.id !== id));
  clearMessages = () => setMessages([]);
  showMessage = (kind, text) => {
    const id = next.current++;
    setMessages((all) => [...all.slice(-3), { id, kind, text }]);
    if (kind === "done") setTimeout(() => drop(id), MESSAGE_MS);
  };
  return (
    <div class="messages" role="status" aria-live="polite">
      {messages.map(({ id, kind, text }) => (
        <div class={`message ${kind}`} key={id}>
          <span>{text}</span>
          <button type="button" class="plain" aria-label="Dismiss this message" onClick={() => drop(id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}

/** What was known before a request failed: dimmed, because it may no longer hold. */
export const LastKnown = ({ error, children }: { error?: ApiError; children: ComponentChildren }) => (
  <div class={error ? "known stale" : "known"}>{children}</div>
);

/** An error in the page, with a way to try again. */
export function Failure({ error, again, more }: { error?: ApiError; again?: () => void; more?: string }) {
  if (!error) return null;
  return (
    <div class="failure" role="alert">
      <span>
        {error.message} {more}
      </span>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export const NoBucket = () => <p>There is no bucket, or none that you may use.</p>;

export const Busy = ({ text = "Loading…" }: { text?: string }) => (
  <p class="busy" role="status">
    <span class="spinner" aria-hidden="true" />
    {text}
  </p>
);

/** A modal dialog. Escape and the button close it. */
export function Dialog(props: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => opener?.focus?.();
  }, []);
  const cancel = (event: Event) => {
    event.preventDefault();
    props.close();
  };
  return (
    <dialog ref={dialog} aria-labelledby={title} class={props.wide ? "wide" : ""} onCancel={cancel}>
      <header>
        <h2 id={title}>{props.title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick={props.close}>
          ×
        </button>
      </header>
      {props.children}
    </dialog>
  );
}

interface FieldProps {
  label: string;
  hint?: string;
  children: (id: string, hintId: string | undefined) => JSX.Element;
}

/** A label, its control and a hint. */
export function Field({ label, hint, children }: FieldProps) {
  const id = useId();
  const hintId = hint ? `${id}-hint` : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, hintId)}
      {hint && (
        <small id={hintId} class="hint">
          {hint}
        </small>
      )}
    </div>
  );
}

interface InputProps {
  label: string;
  hint?: string;
  value: string;
  change: (value: string) => void;
  type?: "text" | "search" | "number" | "password";
  min?: number;
  required?: boolean;
  autocomplete?: "off" | "new-password" | "current-password";
  spellcheck?: boolean;
  "data-search"?: boolean;
}

export function TextField({ label, hint, value, change, type = "text", ...rest }: InputProps) {
  return (
    <Field label={label} hint={hint}>
      {(id, hintId) => (
        <input
          {...rest}
          // The types differ in attributes that are not used here.
          type={type as "text"}
          id={id}
          aria-describedby={hintId}
          value={value}
          onInput={(event) => change((event.target as HTMLInputElement).value)}
        />
      )}
    </Field>
  );
}

interface SelectProps {
  label: string;
  hint?: string;
  value: string;
  options: (string | [value: string, text: string])[];
  change: (value: string) => void;
  disabled?: boolean;
}

export function SelectField({ label, hint, value, options, change, disabled }: SelectProps) {
  return (
    <Field label={label} hint={hint}>
      {(id, hintId) => (
        <select
          id={id}
          aria-describedby={hintId}
          disabled={disabled}
          value={value}
          onChange={(event) => change((event.target as HTMLSelectElement).value)}
        >
          {options.map((option) => {
            const [value, text] = typeof option === "string" ? [option, option] : option;
            return (
              <option value={value} key={value}>
                {text}
              </option>
            );
          })}
        </select>
      )}
    </Field>
  );
}

/** A form whose submission is one request. The error stays in the form. */
export function RequestForm(props: {
  submit: () => Promise<unknown>;
  text: string;
  busyText?: string;
  disabled?: boolean;
  danger?: boolean;
  cancel?: () => void;
  cancelText?: string;
  /** One more button. */
  other?: ComponentChildren;
  children?: ComponentChildren;
}) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isBusy || props.disabled) return;
    setBusy(true);
    setError(undefined);
    try {
      await props.submit();
    } catch (failure) {
      setError(asApiError(failure));
    }
    setBusy(false);
  };
  return (
    <form onSubmit={submit}>
      {props.children}
      <Failure error={error} />
      <div class="buttons">
        {props.cancel && (
          <button type="button" onClick={props.cancel}>
            {props.cancelText ?? "Cancel"}
          </button>
        )}
        {props.other}
        <button type="submit" class={props.danger ? "danger" : "primary"} disabled={isBusy || props.disabled}>
          {isBusy ? (props.busyText ?? "Working…") : props.text}
        </button>
      </div>
    </form>
  );
}

interface ConfirmationProps {
  title: string;
  what: ComponentChildren;
  action: string;
  act: () => Promise<unknown>;
  close: () => void;
}

/** Asks before something is destroyed. */
export function Confirmation(props: ConfirmationProps & { disabled?: boolean; children?: ComponentChildren }) {
  const submit = async () => {
    await props.act();
    props.close();
  };
  return (
    <Dialog title={props.title} close={props.close}>
      <RequestForm danger text={props.action} disabled={props.disabled} cancel={props.close} submit={submit}>
        <p>{props.what}</p>
        {props.children}
      </RequestForm>
    </Dialog>
  );
}

/** Asks for the name of what is to be destroyed with all that it has. */
export function TypedConfirmation({ name, what, ...rest }: ConfirmationProps & { name: string }) {
  const [typed, setTyped] = useState("");
  return (
    <Confirmation {...rest} what={<>{what} This cannot be undone.</>} disabled={typed !== name}>
      <TextField
        label={`To confirm, type the name “${name}”`}
        value={typed}
        change={setTyped}
        autocomplete="off"
        spellcheck={false}
      />
    </Confirmation>
  );
}

export const Meter = ({ label, value, max }: { label: string; value: number; max: number }) => (
  <div class="meter">
    <meter min={0} max={Math.max(max, 1)} high={max * 0.9} optimum={0} value={value} aria-label={label} />
  </div>
);
