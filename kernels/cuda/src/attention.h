// What the attention kernels share. A grid is (tiles of a sequence · batch · heads), the tile fastest.
#pragma once
#include "device.h"

struct Shape {
  int seq, heads, kv_heads, width;  // width is HeadDim
  float scale;                      // of the scores
};

// Place is what a block works on: columns of qkv by element, rows by sequence.
struct Place {
  int tiles, tile, head, key_head;
  long row0;              // first row of the sequence
  int ld, ldo;            // row strides of qkv and of o
  int query, key, value;  // first columns of its heads
};

// A block for each tile of a query head. The last tile, which has most keys, comes first.
DEVICE Place query_place(Shape z, int rows) {
  Place p;
  p.tiles = (z.seq + rows - 1) / rows;
  p.tile = p.tiles - 1 - block_x() % p.tiles;
  int head = block_x() / p.tiles;
  p.head = head % z.heads;
  p.key_head = p.head / (z.heads / z.kv_heads);
  p.row0 = (long)(head / z.heads) * z.seq;
  p.ld = (z.heads + 2 * z.kv_heads) * z.width;
  p.ldo = z.heads * z.width;
  p.query = p.head * z.width;
  p.key = (z.heads + p.key_head) * z.width;
  p.value = p.key + z.kv_heads * z.width;
  return p;
}

// A block for each tile of a key head. The first tile has most queries.
DEVICE Place key_place(Shape z, int rows) {
  Place p;
  p.tiles = (z.seq + rows - 1) / rows;
  p.tile = block_x() % p.tiles;
  int head = block_x() / p.tiles;
  p.key_head = head % z.kv_heads;
  p.head = p.key_head * (z.heads / z.kv_heads);  // the first that reads it
  p.row0 = (long)(head / z.kv_heads) * z.seq;
  p.ld = (z.heads + 2 * z.kv_heads) * z.width;
  p.ldo = z.heads * z.width;
  p.query = p.head * z.width;
  p.key = (z.heads + p.key_head) * z.width;
  p.value = p.key + z.kv_heads * z.width;
  return p;
}
