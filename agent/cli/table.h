// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headgate::cli {

enum class Color : std::uint8_t { kNone, kDim, kBold, kGreen, kYellow, kRed };

/// `text` between the codes of the colour (ECMA-48), or as it is where `enabled` is false.
[[nodiscard]] std::string paint(std::string_view text, Color color, bool enabled);

/// Text from elsewhere for a terminal: control characters become '?', so that no name can move the
/// cursor, and line ends become spaces.
[[nodiscard]] std::string plain(std::string_view text);

/// Columns that a text takes in a terminal: one a code point. Colour codes are not expected.
[[nodiscard]] std::size_t width_of(std::string_view text);
/// The first `width` columns; the last one is "…" where something was cut.
[[nodiscard]] std::string cut(std::string_view text, std::size_t width);

/// Rows of cells, aligned. Cells are made plain; the last column may be cut to fit.
class Table {
 public:
  struct Cell {
    std::string text;
    Color color = Color::kNone;
  };
  struct Column {
    std::string_view title;
    bool right = false;  ///< numbers
    /// Columns leave a table that is too wide in this order, 1 first; 0 = it stays.
    int leaves = 0;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// As many cells as columns.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  /// One line a row, each ended; `width` 0 = as wide as need be. Else columns leave while the table
  /// is wider (the last one may shrink to kLastWidth for the others), and lines are cut.
  [[nodiscard]] std::string render(std::size_t width, bool color) const;

 private:
  static constexpr std::size_t kLastWidth = 16;

  [[nodiscard]] std::vector<bool> shown(const std::vector<std::size_t>& widths,
                                        std::size_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace headgate::cli
