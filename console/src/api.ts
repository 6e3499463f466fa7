// Requests to the server, with the credentials that the user typed.
//
// Owns: the credentials, which stay in this module's memory: no cookie, no storage, so that another
// site's page cannot use them and closing the tab forgets them. `reload.ts` carries them over a reload.
// `X-Requested-With` keeps the server from asking the browser to show its own login dialog.

import { base64, utf8 } from "./keys";

export interface Role {
  role: string;
  /** What it stands for, in the server's words. */
  privileges?: string;
  bucket_name?: string;
  scope_name?: string;
  collection_name?: string;
}

export interface User {
  id: string;
  roles: Role[];
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

type Fields = Record<string, string | number | boolean | undefined>;

export interface Call {
  query?: Fields;
  form?: Fields;
  body?: string | Uint8Array<ArrayBuffer>;
  json?: unknown;
  signal?: AbortSignal;
}

let authorization: string | null = null;
/** The server may know the new password already and this module the old one. */
let isChanging = false;
let whenRefused: () => void = () => {};

/** Called when the server no longer takes the credentials. */
export function onRefused(callback: () => void) {
  whenRefused = callback;
}

/** Ends a login that the server is about to refuse. */
export const endLogin = () => whenRefused();

export function encoded(fields: Fields): string {
  const pairs = Object.entries(fields).filter(([, value]) => value !== undefined);
  return new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
}

/** A path with each part escaped. */
export function path(...parts: string[]): string {
  return "/" + parts.map(encodeURIComponent).join("/");
}

export const bucketPath = (bucket: string, ...rest: string[]) =>
  path("pools", "default", "buckets", bucket, ...rest);

export const userPath = (id: string) => path("settings", "rbac", "users", "local", id);

/** Sends a request; the answer may have any status. */
export async function send(method: string, target: string, call: Call = {}): Promise<Response> {
  const headers: Record<string, string> = { "X-Requested-With": "oribi-console" };
  if (authorization) headers["Authorization"] = authorization;
  let body: BodyInit | undefined = call.body;
  if (call.form) {
    headers["Content-Type"] = "application/x-www-form-urlencoded";
    body = encoded(call.form);
  } else if (call.json !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(call.json);
  } else if (body !== undefined) {
    headers["Content-Type"] = "application/octet-stream";
  }
  const query = call.query ? encoded(call.query) : "";
  const url = query ? `${target}?${query}` : target;
  try {
    return await fetch(url, {
      method,
      headers,
      body,
      signal: call.signal,
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer. It may be stopped, or the network is down.");
  }
}

/** What the server says is wrong. */
export async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  if (text.startsWith("Requested resource not found")) return new ApiError(response.status, "There is no such bucket.");
  return new ApiError(response.status, messageOf(text) || `The server answered ${response.status}.`);
}

function messageOf(text: string): string {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return text.slice(0, 400).trim();
  }
  if (typeof parsed === "string") return parsed;
  if (typeof parsed !== "object" || parsed === null) return "";
  const { errors, message, permissions, error, _: plain } = parsed as Record<string, unknown>;
  if (typeof errors === "object" && errors !== null) {
    const each = Object.entries(errors).map(([name, what]) => (name === "_" ? `${what}` : `${name}: ${what}`));
    return each.join("; ");
  }
  if (Array.isArray(permissions)) return `Your user lacks the right ${permissions.join(", ")}.`;
  for (const said of [plain, message, error]) if (typeof said === "string") return said;
  return "";
}

/** Sends a request and returns what it answers. */
export async function ask<T>(method: string, target: string, call: Call = {}): Promise<T> {
  const used = authorization;
  const response = await send(method, target, call);
  if (response.status === 401 && used === authorization && !isChanging) whenRefused();
  if (!response.ok) throw await errorOf(response);
  const text = await response.text();
  // Some answers to a change are a sentence for people.
  const isSentence = response.headers.get("Content-Type")?.startsWith("text/plain");
  return (text && !isSentence ? JSON.parse(text) : undefined) as T;
}

export const get = <T>(target: string, query?: Fields, signal?: AbortSignal) =>
  ask<T>("GET", target, { query, signal });

const basic = (name: string, password: string) => "Basic " + base64(utf8(`${name}:${password}`));

/** Changes the password of the user who is logged in. */
export async function changeOwnPassword(name: string, current: string, next: string) {
  if (authorization !== basic(name, current)) throw new ApiError(401, "The current password is wrong.");
  isChanging = true;
  try {
    await ask("POST", "/controller/changePassword", { form: { password: next } });
    authorization = basic(name, next);
  } finally {
    isChanging = false;
  }
}

/** Checks credentials, and keeps them if the server takes them. */
async function enter(credentials: string): Promise<User> {
  authorization = credentials;
  const response = await send("GET", "/whoami").catch((failure) => {
    authorization = null;
    throw failure;
  });
  if (response.ok) return (await response.json()) as User;
  authorization = null;
  if (response.status === 401) throw new ApiError(401, "The name or the password is wrong.");
  throw await errorOf(response);
}

export const logIn = (name: string, password: string) => enter(basic(name, password));

/** Continues a login that `reload.ts` carried over a reload. */
export const resume = enter;

/** What `resume` takes; `null` when nobody is logged in. */
export const credentials = () => authorization;

export function logOut() {
  authorization = null;
}
