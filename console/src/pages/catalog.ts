// The buckets and collections that the user sees.

import { bucketPath, get } from "../api";

export interface Bucket {
  name: string;
  bucketType: string;
  evictionPolicy: string;
  compressionMode: string;
  memoryTier: string;
  conflictResolutionType: string;
  durabilityMinLevel: string;
  numVBuckets: number;
  quota: { ram: number };
  controllers: { flush?: string };
  nodes: { status: string; hostname: string; version: string }[];
  basicStats: { itemCount: number; memUsed: number; diskUsed: number };
}

export interface Collection {
  name: string;
  uid: string;
  maxTTL: number;
}

export interface Scope {
  name: string;
  uid: string;
  collections: Collection[];
}

export const buckets = (signal?: AbortSignal) => get<Bucket[]>("/pools/default/buckets", {}, signal);

export const scopes = async (bucket: string, signal?: AbortSignal) =>
  (await get<{ scopes: Scope[] }>(bucketPath(bucket, "scopes"), {}, signal)).scopes;

/** Each collection as `scope.collection`. */
export const paths = (scopes: Scope[]) =>
  scopes.flatMap((scope) => scope.collections.map((collection) => `${scope.name}.${collection.name}`));
